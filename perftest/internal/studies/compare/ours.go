package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// ours runs this program as a child.
type ours struct {
	path           string
	client, server int // CPUs
	limit          time.Duration
}

func findOurs(client, server int, limit time.Duration) (*ours, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &ours{path: path, client: client, server: server, limit: limit}, nil
}

// amWindow is the maximum number of unacknowledged messages: the default of UCX's -W, which only
// UCT uses. Puts have no such window in UCX; here they are flushed once per window.
const amWindow = "127"

// args returns the arguments of a run. With one round the mean is over all operations, like UCX's.
func (o *ours) args(c Case, ops int) []string {
	args := []string{"-q", "-o", "json", "--layers", c.layer(), "--rounds", "1",
		"-x", c.Transport(), "-t", c.Test, "-s", strconv.Itoa(c.Size),
		"-n", strconv.Itoa(iterations(min(ops, c.maxOps()), c.Size)), "-w", strconv.Itoa(min(ops/10+1, maxUCXWarmup)),
		"-c", fmt.Sprintf("%d,%d", o.client, o.server)}
	if c.Layout != LayoutUCP {
		args = append(args, "-D", c.Layout)
	}
	if c.Name == cmaGroup {
		args = append(args, "--registered")
	}
	if t, err := bench.FindTest(c.Test); err == nil && t.Kind.Message() {
		args = append(args, "-W", amWindow)
	}
	return args
}

// maxSamples is the maximum number of operations of a run with a sample for each: sorting more
// samples takes longer than the run.
const maxSamples = 1 << 20

// maxOps returns the maximum number of operations of a run of ours.
func (c Case) maxOps() int {
	if t, err := bench.FindTest(c.Test); err == nil && t.Window(2) == 1 {
		return maxSamples
	}
	return maxOps
}

// iterations returns the number of small messages with as many bytes: the argument of -n.
func iterations(ops, size int) int {
	if size <= bench.SmallSize {
		return ops
	}
	return ops * size / bench.SmallSize
}

// run measures about ops operations and returns the nanoseconds per operation.
func (o *ours) run(ctx context.Context, c Case, ops int) (ns float64, err error) {
	ctx, cancel := limited(ctx, o.limit)
	defer cancel()
	p := newProcess(ctx, o.path, o.args(c, ops)...)
	if err := p.run(ctx); err != nil {
		return 0, oursFailed(err)
	}
	if ns, err = parseOurs(p.stdout.String(), c); err != nil {
		return 0, fmt.Errorf("%s: %w", p.name(), err)
	}
	return ns, nil
}

// wrongData is the exit status of perftest for wrong data.
const wrongData = 3

// oursFailed distinguishes wrong data from other failures of this program.
func oursFailed(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == wrongData {
		return fmt.Errorf("%w: %w", bench.ErrData, err)
	}
	return err
}

// parseOurs parses the JSON of perftest: the run, and exactly one record.
func parseOurs(out string, c Case) (ns float64, err error) {
	d := json.NewDecoder(strings.NewReader(out))
	var run result.Run
	if err := d.Decode(&run); err != nil {
		return 0, fmt.Errorf("%w (%w)", errNoFigures, err)
	}
	var r result.Record
	if err := d.Decode(&r); err != nil {
		return 0, fmt.Errorf("%w (%w)", errNoFigures, err)
	}
	if err := d.Decode(&result.Record{}); !errors.Is(err, io.EOF) {
		return 0, errors.New("more than one record in the output")
	}
	if r.Layer != c.layer() || r.Test != c.Test || r.Size != c.Size || r.Transport != c.Transport() {
		return 0, fmt.Errorf("asked for %s, got %s/%s/%d over %s", c, r.Transport, r.Test, r.Size, r.Layer)
	}
	if r.LoopNS <= 0 {
		return 0, fmt.Errorf("%v ns for one operation", r.LoopNS)
	}
	return r.LoopNS + r.LoopCostNS, nil
}
