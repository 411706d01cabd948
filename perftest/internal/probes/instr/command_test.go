package instr

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

func TestPlan_Cases(t *testing.T) {
	p := Plan{Ops: []Op{Put, FAdd, Idle}, APIs: []Part{Verbs, UCP}, Sizes: []int{8, 1024}}
	assert.Equal(t, []Case{
		{Op: Put, API: Verbs, Size: 8}, {Op: Put, API: UCP, Size: 8},
		{Op: Put, API: Verbs, Size: 1024}, {Op: Put, API: UCP, Size: 1024},
		{Op: FAdd, API: Verbs, Size: 8}, {Op: FAdd, API: UCP, Size: 8},
		{Op: Idle, API: Verbs}, {Op: Idle, API: UCP},
	}, p.Cases())
	p.APIs, p.Transports = []Part{UCT}, []string{"rc", "rc_mlx5"}
	assert.Contains(t, p.Cases(), Case{Op: Put, API: UCT, Size: 8})
	assert.Contains(t, p.Cases(), Case{Op: Put, API: UCT, Size: 8, Switch: "rc_mlx5"})
	p.APIs = []Part{AVerbs}
	assert.Contains(t, p.Cases(), Case{Op: Put, API: AVerbs, Size: 8, Switch: "rc_mlx5"}, "once")
	assert.Len(t, p.Cases(), 4)
	p = Plan{Ops: []Op{PollTx, PollRx}, APIs: []Part{Verbs, AVerbs, UCT, UCP}, Sizes: []int{8, 1024}}
	assert.Equal(t, []Case{{Op: PollTx, API: Verbs}, {Op: PollTx, API: AVerbs, Switch: "rc_mlx5"}, {Op: PollRx, API: Verbs}, {Op: PollRx, API: AVerbs, Switch: "rc_mlx5"}},
		p.Cases(), "cases of layers with two queues")
	p = Plan{Ops: []Op{AMShort, AMBcopyRecv}, APIs: []Part{Verbs, UCT, UCP}, Sizes: []int{8, 1024}}
	var want []Case
	for _, c := range []Case{{Op: AMShort, API: UCT, Size: 8}, {Op: AMBcopyRecv, API: UCT, Size: 8}, {Op: AMBcopyRecv, API: UCT, Size: 1024}} {
		for _, c.Switch = range []string{"", "rc_mlx5", "sm", "self", "ud", "ud_mlx5"} {
			want = append(want, c)
		}
		if c.Op == AMBcopyRecv && c.Size == 8 {
			continue // SendActive sends these with AMShort
		}
		for _, c.Switch = range []string{"", "rc_mlx5", "sm", "self"} {
			c.API = UCP
			want = append(want, c)
		}
	}
	assert.Equal(t, want, p.Cases(), "messages of uct over every transport")
	p = Plan{Ops: []Op{Put, FAdd, Idle}, APIs: []Part{Verbs, UCP}, Sizes: []int{8, 1024}, Switches: true}
	assert.Contains(t, p.Cases(), Case{Op: Put, API: UCP, Size: 8, Switch: "resolve"})
	assert.Contains(t, p.Cases(), Case{Op: Idle, API: UCP, Switch: "idle-ud"})
	direct := Case{Op: Idle, API: UCP, Switch: "rc_mlx5+idle-ud"}
	assert.NotContains(t, p.Cases(), direct)
	p.Transports = []string{"rc", "rc_mlx5"}
	assert.Contains(t, p.Cases(), direct)
}

// TestOptions_APIs: averbs are only below rc_mlx5, and are counted if they are named.
func TestOptions_APIs(t *testing.T) {
	assert.Equal(t, []string{"verbs", "uct", "ucp"}, options{transports: []string{"rc", "sm"}}.apis())
	assert.Equal(t, []string{"verbs", "averbs", "uct", "ucp"}, options{transports: []string{"rc", "rc_mlx5"}}.apis())
	assert.Equal(t, []string{"averbs"}, options{layers: []string{"averbs"}}.apis())
}

func TestCase_String(t *testing.T) {
	assert.Equal(t, "put 8 B, ucp, resolve", Case{Op: Put, API: UCP, Size: 8, Switch: "resolve"}.String())
	assert.Equal(t, "idle, verbs", Case{Op: Idle, API: Verbs}.String())
	assert.Equal(t, "Op(200)", Op(200).String())
}

func TestCommand_BadFlags(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"operation", []string{"--ops", "put,push"}, `unknown operation "push"`},
		{"layer", []string{"--layers", "tcp"}, `unknown layer "tcp"`},
		{"device is not an API", []string{"--layers", "device"}, `unknown layer "device"`},
		{"transport", []string{"-x", "tcp"}, `unknown transport "tcp"`},
		{"size 0", []string{"-s", "0"}, "1..65536"},
		{"size above the limit", []string{"-s", "65537"}, "1..65536"},
		{"repetitions", []string{"-n", "0"}, "at least 1"},
		{"fabric", []string{"--fabric", "roce"}, `fabric "roce": there are loop, shm`},
		{"format", []string{"-o", "xml"}, `unknown output format "xml"`},
		{"nothing", []string{"--ops="}, "nothing to count"},
		{"no layer", []string{"--layers="}, "nothing to count"},
		{"argument", []string{"put"}, "unknown command"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := execute(Command(), tc.args...)
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func execute(cmd *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	err := cmd.Execute()
	return out.String(), err
}

func TestCommand_Formats(t *testing.T) {
	t.Setenv(standinEnv, "")
	for format, want := range map[string]string{
		"table": "put, 8 B", "md": "| put, 8 B |", "csv": "put,8,uct,,loop,verbs,", "json": `"layer":"uct"`,
	} {
		t.Run(format, func(t *testing.T) {
			out, err := execute(Command(), "--ops", "put", "-s", "8", "--layers", "verbs,uct", "-n", "2", "-o", format)
			if errors.Is(err, ptrace.ErrForbidden) || errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			assert.Contains(t, out, want)
		})
	}
}

func TestCommand_BelowAnotherRoot(t *testing.T) {
	root := &cobra.Command{Use: "perftest"}
	cmd := Command()
	root.AddCommand(cmd)
	assert.Equal(t, []string{"instructions", "child"}, childArgs(cmd))
	assert.Equal(t, []string{"child"}, childArgs(Command()))
}
