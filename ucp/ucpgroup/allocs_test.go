package ucpgroup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestAllocs: messages and barriers allocate nothing after the pools have grown.
func TestAllocs(t *testing.T) {
	for _, tls := range sets {
		x := newStepped(t, tls, 2)
		a, b := x.groups[0].World(), x.groups[1].World()
		out, in := make([]byte, 64), make([]byte, 64)
		pass := func() {
			r, err := b.Irecv(0, 3, in, nil)
			if err == nil {
				err = a.Send(t.Context(), 1, 3, out)
			}
			var st Status
			for done := false; !done && err == nil; {
				a.g.Progress()
				done, st, err = r.Test()
			}
			if err != nil || st != (Status{0, 3, len(in)}) {
				t.Fatal(st, err)
			}
		}
		kept := func() {
			s, err := a.Isend(1, 4, out, nil)
			if err != nil {
				t.Fatal(err)
			}
			for found := false; !found; _, found, _ = b.Iprobe(AnySource, AnyTag) {
				a.g.Progress()
			}
			if _, err := b.Recv(t.Context(), AnySource, AnyTag, in); err != nil {
				t.Fatal(err)
			}
			for done := s.Done(); !done; done = s.Done() {
				a.g.Progress()
			}
			if _, err := s.take(); err != nil {
				t.Fatal(err)
			}
		}
		barrier := func() {
			ra, err := a.Ibarrier()
			if err != nil {
				t.Fatal(err)
			}
			rb, err := b.Ibarrier()
			if err != nil {
				t.Fatal(err)
			}
			for !ra.Done() || !rb.Done() {
				a.g.Progress()
				b.g.Progress()
			}
			_, errA := ra.take()
			_, errB := rb.take()
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
		}
		require.NoError(t, x.connected())
		for name, op := range map[string]func(){"send and receive": pass, "kept message": kept, "barrier": barrier} {
			for range 2000 { // credit is returned in batches
				op()
			}
			testenv.NoAllocs(t, tls+" "+name, op)
		}
	}
}

// connected makes each pair of ranks connect.
func (x *stepped) connected() error {
	var reqs []*Request
	for _, g := range x.groups {
		for q := range x.groups {
			r, err := g.World().Isend(q, 0, nil, nil)
			if err != nil {
				return err
			}
			reqs = append(reqs, r)
			if r, err = g.World().Irecv(q, 0, nil, nil); err != nil {
				return err
			}
			reqs = append(reqs, r)
		}
	}
	return x.ended(reqs...)
}
