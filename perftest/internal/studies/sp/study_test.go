package sp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// over returns a configuration with the given transports, in which the rendezvous threshold is below the messages of
// class S.
func over(tls string) func(env []string) (gucx.Config, error) {
	return func(env []string) (gucx.Config, error) {
		environ := append(append(os.Environ(), "GUCX_TLS="+tls), env...)
		environ = append(environ, "GUCX_RNDV_THRESH=512")
		return gucx.FromEnv(environ, gucx.Own{})
	}
}

// runStudy runs a study on goroutines.
func runStudy(t *testing.T, s *Study, ranks int) (rows []Row, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	defer cancel()
	boots, errs := ucpgroup.InProcess(ranks), make([]error, ranks)
	var wait sync.WaitGroup
	for q, b := range boots {
		wait.Go(func() {
			r, err := s.Run(ctx, b, nil)
			if errs[q] = err; q == 0 {
				rows = r
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// studied is a study of the tests.
type studied struct {
	class, tls string
	ranks      int
	protocols  protocol.List
}

// studies returns the studies for the current type of test run.
func studies() []studied {
	all := Protocols()
	switch {
	case testenv.Soak():
		return []studied{{"S", "sm", 9, all}, {"S", "tcp", 9, all[:3]}, {"S", `\rc`, 9, all}, {"W", "sm", 4, all}, {"W", `\rc`, 9, all[:3]}}
	case testing.Short():
		return []studied{{"S", "sm", 4, all[:1]}}
	}
	return []studied{{"S", "sm", 4, all[:3]}, {"S", `\rc`, 4, all}}
}

// The results of classes are verified with each protocol over some transports.
func TestStudy(t *testing.T) {
	for _, c := range studies() {
		t.Run(fmt.Sprint(c.class, c.ranks, c.tls), func(t *testing.T) {
			s := &Study{Class: classOf(t, c.class), Protocols: c.protocols, Config: over(c.tls)}
			rows, err := runStudy(t, s, c.ranks)
			require.NoError(t, err)
			require.Len(t, rows, len(c.protocols))
			for _, r := range rows {
				assert.Equal(t, c.ranks, r.Ranks)
				assert.Positive(t, r.Rate)
				assert.Positive(t, r.MiB)
				queued := 0.0
				if strings.HasPrefix(r.Protocol, "tupleq") {
					queued = 1 // except one message of each hundred, with 100 steps
				}
				assert.InDelta(t, queued, r.Queued, 0.05, "%+v", r)
			}
		})
	}
}

// A result that differs from the published one is ErrVerify on each rank.
func TestStudy_DetectsWrongResult(t *testing.T) {
	class := classOf(t, "S")
	class.Steps = 1
	s := &Study{Class: class, Protocols: Protocols()[:1], Config: over("sm")}
	for range testenv.Rounds(5, 100) {
		errs := make([]error, 4)
		var wait sync.WaitGroup
		for q, b := range ucpgroup.InProcess(len(errs)) {
			wait.Go(func() { _, errs[q] = s.Run(t.Context(), b, nil) })
		}
		wait.Wait()
		for q, err := range errs {
			require.ErrorIs(t, err, ErrVerify, "rank %d", q)
		}
	}
}

// If a rank fails, the waits of the other ranks end.
func TestStudy_OneRankFails(t *testing.T) {
	s := &Study{Class: classOf(t, "S"), Protocols: Protocols()[:1], Config: over("sm")}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	defer cancel()
	boots, errs := ucpgroup.InProcess(4), make([]error, 4)
	why := errors.New("enough")
	var wait sync.WaitGroup
	for q, b := range boots {
		wait.Go(func() {
			ctx, stop := context.WithCancelCause(ctx)
			defer stop(nil)
			steps := 0
			_, errs[q] = s.Run(ctx, b, func(string) {
				if steps++; q == 2 && steps == 5 {
					stop(why)
				}
			})
		})
	}
	wait.Wait()
	for q, err := range errs {
		assert.Error(t, err, "rank %d", q)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "rank %d", q)
		var at *ucpgroup.RankError
		if q != 2 && assert.ErrorAs(t, err, &at, "rank %d", q) {
			assert.Equal(t, 2, at.Rank, "rank %d", q)
		}
	}
	assert.ErrorIs(t, errs[2], why)
}
