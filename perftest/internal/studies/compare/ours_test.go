package compare

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

func TestOurs_Args(t *testing.T) {
	o := &ours{client: 1, server: 0}
	assert.Equal(t, "-q -o json --layers uct --rounds 1 -x tcp -t am_mr -s 8 -n 5000 -w 501 -c 1,0 -D short -W 127",
		strings.Join(o.args(Case{Name: "tcp", Test: "am_mr", Size: 8, Layout: "short"}, 5000), " "))
	assert.Contains(t, strings.Join(o.args(Case{Name: "cma", Test: "put_bw", Size: mib, Layout: "zcopy"}, 100), " "),
		"-x sm -t put_bw -s 1048576 -n 12800 -w 11 -c 1,0 -D zcopy --registered", "-n counts operations of 8 KiB")
	assert.Equal(t, "-q -o json --layers ucp --rounds 1 -x sm -t tag_mr -s 8 -n 5000 -w 501 -c 1,0 -W 127",
		strings.Join(o.args(Case{Name: "sm", Test: "tag_mr", Size: 8, Layout: LayoutUCP}, 5000), " "))
}

func TestMaxOps_LimitsSampledOperations(t *testing.T) {
	assert.Equal(t, maxSamples, Case{Test: "am_lat"}.maxOps())
	assert.Equal(t, maxSamples, Case{Test: "put_pp"}.maxOps())
	assert.Equal(t, maxOps, Case{Test: "put_mr"}.maxOps())
}

// output returns the output of perftest -o json.
func output(t *testing.T, records ...result.Record) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	require.NoError(t, e.Encode(result.Run{}))
	for _, r := range records {
		require.NoError(t, e.Encode(r))
	}
	return b.String()
}

func TestParseOurs(t *testing.T) {
	c := Case{Name: "cma", Test: "put_bw", Size: 8}
	good := result.Record{Layer: "uct", Transport: "sm", Test: "put_bw", Size: 8, LoopNS: 4, LoopCostNS: 1}
	ns, err := parseOurs(output(t, good), c)
	require.NoError(t, err)
	assert.InDelta(t, 5, ns, 0)

	bad := func(change func(*result.Record)) string {
		r := good
		change(&r)
		return output(t, r)
	}
	for name, out := range map[string]string{
		"nothing":         "",
		"no record":       output(t),
		"two records":     output(t, good, good),
		"no JSON":         "panic",
		"another test":    bad(func(r *result.Record) { r.Test = "put_mr" }),
		"another size":    bad(func(r *result.Record) { r.Size = 9 }),
		"another layer":   bad(func(r *result.Record) { r.Layer = "ucp" }),
		"other transport": bad(func(r *result.Record) { r.Transport = "tcp" }),
		"no time":         bad(func(r *result.Record) { r.LoopNS = 0 }),
	} {
		_, err := parseOurs(out, c)
		assert.Error(t, err, name)
	}
}
