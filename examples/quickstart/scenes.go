package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/secondrun/secondrun/adapters/sqs/sqstest"
)

// scene is one way in which work is done twice.
type scene struct {
	name  string
	story string
	// workers is the number of workers on each side; copies is how often the
	// producer sends the message.
	workers, copies int
	slow            time.Duration
	// arrange prepares one side; die makes the first worker a process that is
	// killed right after the charge.
	arrange func(d *demo, mode, queue string)
	die     bool
}

var scenes = []scene{
	{
		name: "lost delete", workers: 1, copies: 1,
		story: "The handler is done; the network loses the delete of the message. SQS delivers it again.",
		arrange: func(d *demo, _, queue string) {
			outage := time.Now().Add(hold - time.Second)
			for _, op := range []string{"DeleteMessage", "DeleteMessageBatch"} {
				d.srv.Fault(op, func(c sqstest.Call) *sqstest.Fault {
					if c.Queue != queue || time.Now().After(outage) {
						return nil
					}
					return &sqstest.Fault{DropRequest: true}
				})
			}
		},
	},
	{
		name: "double send", workers: 1, copies: 2,
		story: "The producer timed out and sent the order a second time: two messages, two ids, one event.",
	},
	{
		name: "slow handler", workers: 2, copies: 1, slow: hold * 4 / 3,
		story: fmt.Sprintf("The handler takes %v, the visibility timeout is %v, and a second worker is idle.", hold*4/3, hold),
	},
	{
		name: "failed mail", workers: 1, copies: 1,
		story: "The charge succeeds, the receipt fails. The handler must run again; the charge must not.",
		arrange: func(d *demo, mode, _ string) {
			d.world.mu.Lock()
			defer d.world.mu.Unlock()
			d.world.mailDown[mode] = 1
		},
	},
	{
		name: "killed worker", workers: 1, copies: 1, die: true,
		story: "SIGKILL between the charge and the record. Another process takes over when the lease has ended.",
	},
}

// demo holds what all scenes share.
type demo struct {
	srv   *sqstest.Server
	sqs   string // endpoint
	world *world
	dir   string // for the SQLite files
	say   func(mode, format string, args ...any)
}

// play plays a scene on both sides at once and returns what happened.
func (d *demo) play(ctx context.Context, n int, s scene) (map[string]tally, error) {
	d.world.reset()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, mode := range []string{without, with} {
		wg.Go(func() { errs[i] = d.side(ctx, fmt.Sprintf("%d-%s", n, mode), mode, s) })
	}
	wg.Wait()
	out := map[string]tally{}
	for _, mode := range []string{without, with} {
		t := d.world.tally(mode)
		t.Deliveries = d.srv.Queue(fmt.Sprintf("%d-%s", n, mode)).Counts().Received
		out[mode] = t
	}
	return out, errors.Join(errs...)
}

// side plays one side: sends the order, lets the workers work, and returns when
// the queue is empty.
func (d *demo) side(ctx context.Context, queue, mode string, s scene) error {
	w := worker{sqs: d.sqs, shop: d.world.url, slow: s.slow}
	if mode == with {
		w.db = filepath.Join(d.dir, queue+".db")
	}
	client := w.client()
	created, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: &queue, Attributes: map[string]string{"VisibilityTimeout": fmt.Sprint(int(hold.Seconds()))},
	})
	if err != nil {
		return err
	}
	w.queue = aws.ToString(created.QueueUrl)
	if s.arrange != nil {
		s.arrange(d, mode, queue)
	}
	body, err := json.Marshal(order{ID: fmt.Sprintf("ord-%s", queue[:1]), Amount: 4200})
	if err != nil {
		return err
	}
	for range s.copies {
		if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &w.queue, MessageBody: aws.String(string(body))}); err != nil {
			return err
		}
	}
	if s.die {
		if err := d.kill(ctx, w, mode); err != nil {
			return err
		}
	}
	return d.work(ctx, w, queue, s.workers)
}

// work runs workers until the queue is empty.
func (d *demo) work(ctx context.Context, w worker, queue string, n int) error {
	ctx, stop := context.WithCancel(ctx)
	errs := make(chan error, n)
	for range n {
		go func() { errs <- w.run(ctx) }()
	}
	left := func() int {
		c := d.srv.Queue(queue).Counts()
		return c.Visible + c.InFlight + c.Delayed
	}
	for left() > 0 && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	err := context.Cause(ctx)
	stop()
	for range n {
		err = errors.Join(err, <-errs)
	}
	return err
}

// kill runs a worker process and kills it once it has charged.
func (d *demo) kill(ctx context.Context, w worker, mode string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "worker", "-sqs", w.sqs, "-queue", w.queue, "-db", w.db, "-shop", w.shop) //nolint:gosec // ourselves
	cmd.Stderr = os.Stderr
	d.world.mu.Lock() // no charge before the process can be killed
	err = cmd.Start()
	d.world.onCharge[mode] = func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		d.say(mode, "SIGKILL to worker process %d", cmd.Process.Pid)
	}
	d.world.mu.Unlock()
	if err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		return fmt.Errorf("the worker should have been killed: %w", err)
	}
	d.say(mode, "a second worker starts")
	return nil
}
