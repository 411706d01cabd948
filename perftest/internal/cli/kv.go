package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/kv"
)

// Hidden commands that processes of perftest kv run.
const (
	kvServerName = "kv-server"
	kvClientName = "kv-client"
)

// kvFlags are the flags of perftest kv.
type kvFlags struct {
	study     kv.Study
	workloads []string
	output    string
	quiet     bool
}

func newKV() *cobra.Command {
	var k kvFlags
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Measure a key-value store beside Redis",
		Long: `Measure the key-value store of examples/kv, and compare it with Redis.

The workloads are those of YCSB: A is half reads and half updates, B 95 % reads,
C reads only. Keys have a Zipf distribution of 0.99. Servers and clients are
processes of their own on this host; a client has one operation in progress at
a time, and does not pipeline.

Stores: kv, in which a read is a get from the memory of the server and an update
is a call; kv-replicated, the same with a second server that stores each update
before the acknowledgment; redis, redis-server without persistence over a unix
socket, which is omitted if it is not installed.`,
		Example: `  perftest kv                                    all workloads, 1 and 4 clients
  perftest kv --workloads b --clients 4 --value 1000 -o csv
  perftest kv --stores kv,redis --time 5s`,
		Args:    usage(cobra.NoArgs),
		PreRunE: usage(func(*cobra.Command, []string) error { return k.check() }),
		RunE:    func(cmd *cobra.Command, _ []string) error { return k.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&k.workloads, "workloads", []string{"A", "B", "C"}, "workloads: A, B, C")
	f.StringSliceVar(&k.study.Stores, "stores", kv.Stores(), "stores to compare")
	quantity.Counts(f, &k.study.Clients, "clients", "t", []int{1, 4}, "numbers of clients, each a process")
	quantity.Count(f, &k.study.Records, "records", "n", 10_000, "records in the store")
	f.IntVar(&k.study.Value, "value", 100, "length of a value in bytes")
	f.DurationVar(&k.study.Time, "time", 200*time.Millisecond, "measured time of each row in a round")
	f.IntVar(&k.study.Rounds, "rounds", 3, "rounds in which all stores are measured; the one with the median rate counts")
	f.StringVarP(&k.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.BoolVarP(&k.quiet, "quiet", "q", false, "show no progress")
	complete.List(cmd, "workloads", complete.Values("A", "B", "C"))
	complete.List(cmd, "stores", kv.Stores)
	complete.One(cmd, "output", sheet.Formats)
	return cmd
}

func (k *kvFlags) check() (err error) {
	for _, name := range k.workloads {
		w, e := kv.ParseWorkload(name)
		k.study.Workloads, err = append(k.study.Workloads, w), errors.Join(err, e)
	}
	return errors.Join(err, k.study.Check(), sheet.CheckFormat(k.output))
}

func (k *kvFlags) run(cmd *cobra.Command) error {
	k.study.Server, k.study.Client = starter(kvServerName), starter(kvClientName)
	m := meter.New(os.Stderr, k.study.Cases(), k.quiet)
	rows, missing, err := k.study.Run(cmd.Context(), func(label string) { m.Step(label, k.study.Value) })
	m.Close()
	if len(rows) == 0 {
		if why := errors.Join(missing...); why != nil {
			return cmp.Or(err, error(&skipError{oneLine(why)}))
		}
		return err
	}
	var s shown
	c := s.conditions(cmd.Context(), fmt.Sprintf("%d records of %d bytes, median of %d rounds of %v; one operation in progress for each client", k.study.Records, k.study.Value, k.study.Rounds, k.study.Time), err)
	lines := []string{fmt.Sprintf("%s, GOMAXPROCS %d", c.Machine, c.Machine.GOMAXPROCS), "gucx " + c.Commit, c.Problem}
	for _, why := range missing {
		lines = append(lines, "omitted: "+why.Error())
	}
	return errors.Join(err, kv.Sheet(c, append(lines, c.Lines()...), rows).Write(cmd.OutOrStdout(), k.output))
}
