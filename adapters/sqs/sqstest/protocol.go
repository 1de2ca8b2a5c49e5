package sqstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	targetHeader = "X-Amz-Target"
	contentType  = "application/x-amz-json-1.0"
	maxRequest   = 16 << 20 // far above 10 messages of 1 MiB in all, escaped
)

// errDropped stands for a connection that broke.
var errDropped = errors.New("sqstest: connection dropped by a fault")

// call is one request on its way through the server.
type call struct {
	ctx   context.Context
	op    string
	base  string // scheme and host the caller used; queue URLs start with it
	body  []byte
	fault *Fault
}

// handler answers a call with a value to encode, or an error: *Error for an
// answer of SQS, anything else for a broken connection.
type handler func(s *Server, c *call) (any, error)

// handle runs one request. Its error means that the caller gets no reply.
func (s *Server) handle(ctx context.Context, target, base string, body []byte) (*reply, error) {
	op, ok := strings.CutPrefix(target, "AmazonSQS.")
	h := lookup(op)
	if !ok || h == nil {
		return s.reply(nil, newError("UnknownOperationException", "unknown operation %q", target))
	}
	c := &call{ctx: ctx, op: op, base: base, body: body}
	entry := s.begin(c)
	out, err := s.apply(c, h)
	s.end(entry, err)
	if err == nil || errors.As(err, new(*Error)) {
		if f := c.fault; f != nil {
			if werr := pause(ctx, f.DelayReply); werr != nil {
				return nil, werr
			}
			if f.DropReply {
				return nil, errDropped
			}
		}
	}
	return s.reply(out, err)
}

// apply does what the call asks for, unless its fault forbids.
func (s *Server) apply(c *call, h handler) (any, error) {
	if f := c.fault; f != nil {
		if err := pause(c.ctx, f.Delay); err != nil {
			return nil, err
		}
		if f.DropRequest {
			return nil, errDropped
		}
		if f.Code != "" && f.FailEntries == nil {
			return nil, newError(f.Code, "%s", f.message())
		}
	}
	return h(s, c)
}

// on adapts a typed operation. The request is decoded before the operation
// runs and before any lock is taken.
func on[In any](f func(s *Server, c *call, in In) (any, error)) handler {
	return func(s *Server, c *call) (any, error) {
		var in In
		if len(bytes.TrimSpace(c.body)) > 0 {
			if err := json.Unmarshal(c.body, &in); err != nil {
				return nil, newError("SerializationException", "the request cannot be decoded: %v", err)
			}
		}
		return f(s, c, in)
	}
}

// reply is an answer before it is written to a connection.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (s *Server) reply(out any, err error) (*reply, error) {
	rep := &reply{status: http.StatusOK, header: http.Header{"Content-Type": {contentType}}}
	rep.header.Set("X-Amzn-Requestid", s.requestID())
	rep.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return nil, err
		}
		kind := shapeOf(e.Code)
		rep.status = kind.status
		if !s.opts.OmitQueryErrors {
			rep.header.Set("X-Amzn-Query-Error", kind.query+";"+kind.fault())
		}
		out = map[string]string{"__type": kind.typ, "message": e.Message}
	}
	if out == nil {
		out = struct{}{}
	}
	rep.body, err = json.Marshal(out)
	return rep, err
}

func (rep *reply) write(w http.ResponseWriter) {
	for k, v := range rep.header {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(rep.body)))
	w.WriteHeader(rep.status)
	_, _ = w.Write(rep.body) // the caller is gone if this fails
}

func (rep *reply) response(r *http.Request) *http.Response {
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", rep.status, http.StatusText(rep.status)),
		StatusCode: rep.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        rep.header,
		Body:          io.NopCloser(bytes.NewReader(rep.body)),
		ContentLength: int64(len(rep.body)),
		Request:       r,
	}
}

func readBody(r io.ReadCloser) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxRequest+1))
	if err == nil && len(b) > maxRequest {
		err = fmt.Errorf("sqstest: a request of more than %d bytes", maxRequest)
	}
	return b, err
}

// pause waits for d unless the context ends first, whose error it returns.
// The timer belongs to the caller's synctest bubble, if there is one.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookup returns the operation of that name, or nil.
func lookup(op string) handler {
	switch op {
	case "CreateQueue":
		return on((*Server).createQueue)
	case "GetQueueUrl":
		return on((*Server).getQueueURL)
	case "ListQueues":
		return on((*Server).listQueues)
	case "DeleteQueue":
		return on((*Server).deleteQueue)
	case "PurgeQueue":
		return on((*Server).purgeQueue)
	case "GetQueueAttributes":
		return on((*Server).getQueueAttributes)
	case "SetQueueAttributes":
		return on((*Server).setQueueAttributes)
	case "SendMessage":
		return on((*Server).sendMessage)
	case "SendMessageBatch":
		return on((*Server).sendMessageBatch)
	case "ReceiveMessage":
		return on((*Server).receiveMessage)
	case "DeleteMessage":
		return on((*Server).deleteMessage)
	case "DeleteMessageBatch":
		return on((*Server).deleteMessageBatch)
	case "ChangeMessageVisibility":
		return on((*Server).changeVisibility)
	case "ChangeMessageVisibilityBatch":
		return on((*Server).changeVisibilityBatch)
	}
	return lookupAdmin(op)
}

func lookupAdmin(op string) handler {
	switch op {
	case "StartMessageMoveTask":
		return on((*Server).startMoveTask)
	case "ListMessageMoveTasks":
		return on((*Server).listMoveTasks)
	case "CancelMessageMoveTask":
		return on((*Server).cancelMoveTask)
	case "ListDeadLetterSourceQueues":
		return on((*Server).listSources)
	case "TagQueue":
		return on((*Server).tagQueue)
	case "UntagQueue":
		return on((*Server).untagQueue)
	case "ListQueueTags":
		return on((*Server).listQueueTags)
	case "AddPermission", "RemovePermission":
		return func(*Server, *call) (any, error) {
			return nil, newError("UnsupportedOperation", "sqstest has no access control")
		}
	}
	return nil
}
