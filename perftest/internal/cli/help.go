package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const longHelp = `Measure the cost of each layer of gucx: verbs, UCT and UCP in comparison.`

// overview are the examples in the help of root.
const overview = `  perftest                              the comparison: less than 20 s
  perftest -x sm,tcp -t am_lat -s 8-1k  transports, tests, sizes
  perftest --save a.json                for perftest compare a.json b.json
  perftest ranks                        messages and collectives of ranks`

// topic is a text of perftest help.
type topic struct{ name, short, text string }

// topics are the texts that belong to no command, except those about flags and commands.
var topics = []topic{
	{"method", "how the comparison measures", methodHelp},
	{"examples", "more examples", examples},
	{"status", "the exit status", statusHelp},
}

const methodHelp = `Without a subcommand perftest starts a second process, the target, and runs the
same one-sided operations against its memory three times: over verbs, over UCT
and over UCP, on the same device. It prints tables: for each size the latency
of a put with remote completion, split into Post (the posting call) and Flush
(until the data is in the target's memory), then bandwidth and message rate of
puts and gets with a window of operations for each flush, and what each layer
adds to the one below it. Overheads have intervals of 95 %, and differences
that are not significant are omitted. Data is verified on both sides. The run
takes less than 20 s on an idle machine, and a minute with --full.

After a warm-up the layers alternate in rounds (verbs, uct, ucp, verbs, ...),
so that noise of the machine affects all of them, and overhead is the median
over rounds of the difference. Each layer is called as a careful user would
call it:

  verbs  RC QP in a thread domain, single-threaded CQ: no locks; writes inline
         up to the limit of the rc transport; a completion for the last
         operation of a window and for each 64th
  uct    short operations up to the transport's limit, zero-copy beyond
  ucp    memory and key from ucp, the memory handle given with each operation,
         blocking flush

-x measures any transport that perftest info -d lists, through the layers that
it has. In tests of messages (am_, tag_, stream_) and in put_pp the target
polls too; in the other tests only if the transport needs it. -D selects the
variant of UCT, or the layout of UCP's messages on both sides. If -s has one
size, an operation that the transport does not support is an error; otherwise
it is omitted.

Queue lengths are the same in all layers and are set by the variables of the
transport, such as GUCX_RC_*; see perftest info -c. Without -x, GUCX_TLS and
GUCX_NET_DEVICES select the transport. Times are read from the time-stamp
counter of the CPU; the costs of the loop and of the readings are measured and
subtracted. During the measurement there is no garbage collection, and nothing
allocates. -n is the number of operations of up to 8 KiB; there are fewer
larger ones, which move the same number of bytes.

-E sleep measures wake-ups, through ucp only: between two messages both sides
arm their worker (Worker.Arm) and block in poll(2), without polling before. It
is for tests of messages; one-sided operations that complete at once do not
wait, and put_pp is rejected, because a put does not wake the target.

-T N makes N goroutines on each side post and wait at the same time, through
ucp, and prints the results of all and of each one; several numbers (-T 1-8),
or several modes, make one table of totals. Goroutine i sends to goroutine i of
the target. -M is how they use workers: single, one each, as in ucx_perftest;
serialized, one worker under a lock of the program; multi, one SharedWorker.
Threads are not pinned then, and flags of other measurements are rejected.
Tests are those of am, tag, put and get.

--counters runs the operations once more and counts for each row the system
calls, context switches, page faults and packets of one operation, on both
sides: with root or CAP_BPF by eBPF programs, otherwise by the kernel's
software counters or getrusage. The table has the source and the reason.

docs/perftest.md explains method and columns.`

const statusHelp = `  0      success
  1      failure, with the reason
  2      wrong usage or environment
  3      wrong data
  4      compare: an operation takes longer than before
  77     skipped: the machine lacks a requirement of the command
  128+n  ended by signal n

A run that ends early prints the rows that it has measured, with a note in the
heading, and exits with the status of the reason.`

const examples = `  perftest                                  the comparison
  perftest --full                           at all powers of two up to 1 MiB
  perftest -s 8 -t put_lat,fadd_lat,flush   three tests of 8 bytes
  perftest -s 1-64k -o csv > a.csv          powers of two from 1 B to 64 KiB
  perftest --plot put.svg                   curves as well as the table
  perftest --stop-peer -s 8                 with the target process stopped
  perftest -x sm -t am_lat,am_mr -s 8       active messages over shared memory
  perftest -x sm,tcp,rc -t put_lat -s 8     transports in comparison
  perftest -x tcp -t put_bw -D zcopy        one variant of UCT over sockets
  perftest -x sm -t tag_bw -D iov,generic   messages from lists and callbacks
  perftest -x sm -t am_lat -E sleep -s 8    both sides sleep between messages
  perftest -x tcp -t am_lat --counters      system calls and switches as well
  perftest -x sm -T 4 -M multi -t tag_mr    four goroutines that share a worker
  perftest -x sm -s 8 -T 1,4 -M multi       costs of sharing a worker
  perftest -b FILE                          runs of a batch file
  perftest server & perftest client         the two ends in two shells
  perftest ranks                            messages and collectives of ranks
  perftest info -d                          devices, transports and their limits
  perftest info -p -t tcp                   lanes, protocols by length, and why
  perftest instructions                     count instructions instead of time
  perftest compare-ucx                      the transports and ucx_perftest`

// helpWidth is the width of help texts in columns. Flags are wrapped.
const helpWidth = 80

// wrapFlags changes the template of cobra for it.
var wrapFlags = strings.NewReplacer("Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpWidth))

// groups are the commands of the overview, one line each. A command in none of them is in the last line.
var groups = []struct{ title, names string }{
	{"Compare", "compare compare-ucx crossover instructions"},
	{"Two hosts", "server client"},
	{"Ranks", "ranks"},
	{"Papers", "paper endpoints msgrate dgemm stencil overlap sp su3 lj"},
	{"Machine", "info hardware-check"},
	{"Others", "completion help"},
}

// addTopics adds the topics, and makes root print an overview.
func addTopics(root *cobra.Command) {
	root.InitDefaultHelpFlag()
	all := append([]topic{
		{"flags", "all flags of the comparison", strings.TrimRight(root.LocalFlags().FlagUsagesWrapped(helpWidth), "\n")},
		{"commands", "the commands, with a line on each", commandList(root)},
	}, topics...)
	for _, t := range all {
		c := &cobra.Command{Use: t.name, Short: t.short, Long: t.text}
		c.SetUsageTemplate("")
		c.SetHelpTemplate("{{.Long}}\n")
		root.AddCommand(c)
	}
	ofCommands := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd != root {
			ofCommands(cmd, args)
			return
		}
		_, _ = io.WriteString(cmd.OutOrStdout(), nameInText.ReplaceAllString(overviewText(root), root.Name()+"$1"))
	})
}

// commandList returns a line for each command.
func commandList(root *cobra.Command) string {
	var lines []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			lines = append(lines, fmt.Sprintf("  %-14s %s", c.Name(), c.Short))
		}
	}
	return strings.Join(lines, "\n")
}

// overviewText returns the help of root, which fits into a terminal of 24 lines.
func overviewText(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n", longHelp, overview)
	for i, g := range groups {
		names := strings.Fields(g.names)
		if i == len(groups)-1 {
			names = append(names, ungrouped(root)...)
		}
		fmt.Fprintf(&b, "  %-10s %s\n", g.title, strings.Join(names, ", "))
	}
	fmt.Fprintf(&b, "\nperftest COMMAND --help explains a command, perftest help TOPIC one of\n")
	for _, c := range root.Commands() {
		if c.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(&b, "  %-10s %s\n", c.Name(), c.Short)
		}
	}
	return b.String()
}

// ungrouped returns the commands that are in no group.
func ungrouped(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		grouped := false
		for _, g := range groups {
			grouped = grouped || slices.Contains(strings.Fields(g.names), c.Name())
		}
		if c.IsAvailableCommand() && !grouped {
			names = append(names, c.Name())
		}
	}
	return names
}

// helpPrinter prints the help of commands. cobra itself ignores write errors.
type helpPrinter struct {
	print func(cmd *cobra.Command, args []string) // into the output of cmd
	err   error                                   // of writing help
}

// bind makes root and the commands below it print their help with h.
func (h *helpPrinter) bind(root *cobra.Command) {
	h.print = root.HelpFunc()
	root.SetHelpFunc(h.write)
}

// write prints the help of cmd.
func (h *helpPrinter) write(cmd *cobra.Command, args []string) {
	out := cmd.OutOrStdout()
	var text bytes.Buffer
	cmd.SetOut(&text)
	h.print(cmd, args)
	cmd.SetOut(out)
	_, h.err = out.Write(text.Bytes())
}
