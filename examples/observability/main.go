// Observability shows what secondrun tells about itself. It sends an order
// twice through an SQS queue in memory and prints the spans of the original and
// of its copy, with the link from the copy to the run that did the work:
//
//	go run .
//
// With -serve it then keeps a consumer busy with everything that can happen,
// and serves the metrics to Prometheus until it is interrupted:
//
//	go run . -serve 127.0.0.1:9464
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	secondrun "github.com/secondrun/secondrun/middleware"
)

func main() {
	addr := flag.String("serve", "", "serve metrics at this address until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := show(ctx, os.Stdout)
	if err == nil && *addr != "" {
		err = serve(ctx, os.Stdout, *addr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// show prints the spans of a message and of its copy.
func show(ctx context.Context, out io.Writer) error {
	spans := tracetest.NewInMemoryExporter()
	tel := &secondrun.Telemetry{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Propagator:     propagation.TraceContext{},
	}
	s, err := newShop(ctx, tel)
	if err != nil {
		return err
	}
	defer s.stop()
	for range 2 { // the producer sends twice: another message, the same order
		if err := s.order(ctx, "o-1"); err != nil {
			return err
		}
		if err := s.idle(ctx); err != nil {
			return err
		}
	}
	printSpans(out, spans.GetSpans())
	return nil
}

// serve keeps everything moving, and serves metrics, until ctx ends.
func serve(ctx context.Context, out io.Writer, addr string) error {
	reg := prometheus.NewRegistry()
	exporter, err := promexporter.New(promexporter.WithRegisterer(reg))
	if err != nil {
		return err
	}
	tel := &secondrun.Telemetry{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
		Propagator:    propagation.TraceContext{},
	}
	l, err := newLoad(ctx, tel)
	if err != nil {
		return err
	}
	defer l.stop()
	go l.run(ctx)

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nmetrics at http://%s/metrics\n", listener.Addr())
	srv := &http.Server{Handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
