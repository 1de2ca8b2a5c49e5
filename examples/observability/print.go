package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// shown are the attributes that are printed, by their short names.
var shown = map[string]string{
	"secondrun.verdict": "verdict", "secondrun.attempt": "attempt", "secondrun.fence": "fence",
	"secondrun.outcome": "outcome", "secondrun.key.hash": "key", "secondrun.settled": "settled",
	"secondrun.record": "record", "messaging.batch.message_count": "messages",
}

// printSpans prints spans as trees, trace by trace.
func printSpans(out io.Writer, spans tracetest.SpanStubs) {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	seen := map[trace.TraceID]bool{}
	for _, s := range spans {
		if id := s.SpanContext.TraceID(); !seen[id] {
			seen[id] = true
			fmt.Fprintf(out, "trace %s\n", short(id.String()))
			tree(out, spans, id, trace.SpanID{}, 1)
		}
	}
}

func tree(out io.Writer, spans tracetest.SpanStubs, id trace.TraceID, parent trace.SpanID, depth int) {
	for _, s := range spans {
		if s.SpanContext.TraceID() != id || s.Parent.SpanID() != parent {
			continue
		}
		indent := strings.Repeat("  ", depth)
		fmt.Fprintf(out, "%-*s %s %s\n", 30, indent+s.Name, short(s.SpanContext.SpanID().String()), attributes(&s))
		for _, l := range s.Links {
			kind := ""
			for _, kv := range l.Attributes {
				kind = kv.Value.AsString()
			}
			fmt.Fprintf(out, "%s  -> %s: trace %s, span %s\n", indent, kind, short(l.SpanContext.TraceID().String()), short(l.SpanContext.SpanID().String()))
		}
		tree(out, spans, id, s.SpanContext.SpanID(), depth+1)
	}
}

func attributes(s *tracetest.SpanStub) string {
	var parts []string
	for _, kv := range s.Attributes {
		if name := shown[string(kv.Key)]; name != "" {
			parts = append(parts, name+"="+kv.Value.Emit())
		}
	}
	return strings.Join(parts, " ")
}

func short(id string) string { return id[:8] }
