package ucp_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

// TestProcesses_DeadBeforeTheHandshake: the kernel reports that no process is at the address of a process that has
// exited, so the first operation fails without a timeout.
func TestProcesses_DeadBeforeTheHandshake(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		for name, end := range map[string]func(x *target) error{
			"exited": func(x *target) error { return x.in.Close() },
			"killed": func(x *target) error { return x.cmd.Process.Kill() },
		} {
			t.Run(tls+"/"+name, func(t *testing.T) {
				x := startTarget(t, tls)
				require.NoError(t, end(x))
				_ = x.cmd.Wait() // returns the exit status
				cfg := ucppair.FromEnv(t, "TLS="+tls)
				cfg.WireupTimeout = config.Infinite
				in := x.reachWith(t, cfg)
				err := in.ep.PutWait(in.ctx, testenv.Pattern(8, 1), in.key.Addr(), in.key, nil)
				if err == nil { // it is in flight
					err = in.ep.FlushWait(in.ctx)
				}
				gone := func(err error) bool { return errors.Is(err, ucs.ErrUnreachable) || errors.Is(err, ucs.ErrConnReset) }
				assert.True(t, gone(err), "%v", err)
				assert.True(t, gone(in.ep.Err()), "%v", in.ep.Err())
				in.refused(t)
				require.NoError(t, in.ep.CloseWait(in.ctx, ucp.CloseFlush))
			})
		}
	}
}
