package secondrun_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/secondrun/secondrun/keyfn"
	secondrun "github.com/secondrun/secondrun/middleware"
	"github.com/secondrun/secondrun/store/storetest/seeded"
)

type msg struct{ body string }

func (m msg) Body() []byte           { return []byte(m.body) }
func (m msg) Header(string) []string { return nil }

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := secondrun.New("billing", seeded.Correct(), nil)
		if err != nil {
			t.Fatal(err)
		}
		runs, charges, mails := 0, 0, 0
		h := secondrun.WrapResult(g, keyfn.Template("invoice:{id}:capture"), func(ctx context.Context, m msg) (int, error) {
			runs++
			n, err := secondrun.Once(ctx, "charge", func(context.Context) (int, error) { charges++; return 41 + charges, nil })
			if err != nil {
				return 0, err
			}
			if runs == 1 {
				time.Sleep(2 * time.Minute)
				return 0, secondrun.Transient(errors.New("mail server away"))
			}
			mails++
			return n, nil
		})
		m := msg{`{"id":"inv_1"}`}
		_, err = h.HandleResult(t.Context(), m)
		t.Log(err)
		_, err = h.HandleResult(t.Context(), m)
		t.Log(err)
		time.Sleep(time.Minute)
		for range 3 {
			n, err := h.HandleResult(t.Context(), m)
			if n != 42 || err != nil {
				t.Fatal(n, err)
			}
		}
		if runs != 2 || charges != 1 || mails != 1 {
			t.Fatal(runs, charges, mails)
		}
	})
}
