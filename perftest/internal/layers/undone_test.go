package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/ucp"
)

// Variants of ucp run alternately with it in one run, and each is compared with it.
func TestWithoutRemedies_RunWithUCP(t *testing.T) {
	var tests []bench.Test
	for _, name := range []string{"put_lat", "get_lat", "put_mr", "put_bw"} {
		test, err := bench.FindTest(name)
		require.NoError(t, err)
		tests = append(tests, test)
	}
	names := append([]string{"uct", ucplayer.Name}, WithoutRemedies()...)
	for _, transport := range []string{"rc", "rc_mlx5"} {
		plan := bench.Plan{Tests: tests, Sizes: []int{8, 1 << 10}, Layers: names, Transport: transport, Strict: true, Fabric: "loop",
			Iterations: 64, Warmup: 4, Rounds: 2, Window: 16, Below: Below}
		records, _ := measure(t, plan, newSession(t, Config{}.Set()))
		require.Len(t, records, plan.Cells()*len(names))
		for _, r := range records {
			want := ucplayer.Name
			switch r.Layer {
			case "uct":
				want = ""
			case ucplayer.Name:
				want = "uct"
			}
			assert.Equal(t, want, r.Over, r.Layer)
		}
	}
}

// The name of a layer lists the optimizations that it undoes; in all else it is ucp.
func TestWithoutRemedies_UndoNamedRemedies(t *testing.T) {
	for _, u := range withoutRemedies {
		var c, want Config
		for _, undo := range u.parts {
			undo(&c)
		}
		switch u.name {
		case "ucp-resolve":
			want.UCP.Study.KeyResolve = ucp.ResolveAtOp
		case "ucp-idle-tx":
			want.UCT.IB.PollIdleTx = true
		case "ucp-idle-ud":
			want.UCP.Study.ProgressIdle = true
		case "ucp-resolve-idle-tx":
			want.UCP.Study.KeyResolve, want.UCT.IB.PollIdleTx = ucp.ResolveAtOp, true
		case "ucp-resolve-idle-ud":
			want.UCP.Study.KeyResolve, want.UCP.Study.ProgressIdle = ucp.ResolveAtOp, true
		}
		assert.Equal(t, want, c, u.name)
		assert.Equal(t, ucplayer.Name, Below(u.name))
	}
	assert.Empty(t, Below("uct"))
}
