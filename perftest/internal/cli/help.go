package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const longHelp = `Measure what each layer of gucx costs.

Without a subcommand perftest starts a second process, the target, and runs the
same one-sided operations against its memory three times: over verbs, over UCT
and over UCP, on the same device. It prints tables: for each size the latency
of a put with remote completion, split into Post (the posting call) and Flush
(until the data is in the target's memory), then bandwidth and message rate of
puts and gets with a window of operations for each flush, and what each layer
adds to the one below it, and says so in words at 8 bytes. Data is verified on
both sides. It takes less than 20 s; with --full, at every power of two, a
minute; longer where others use the processors.

The layers take turns in rounds (verbs, uct, ucp, verbs, ...) after a warm-up,
so that a noisy machine is equally noisy to all of them, and overhead is the
median over rounds of the difference. Each layer is called as a careful user
would call it:

  verbs  RC QP in a thread domain, single-threaded CQ: no locks; writes inline
         up to the limit of the rc transport; a completion for the last
         operation of a window and for each 64th
  uct    short operations up to the transport's limit, zero-copy beyond
  ucp    memory and key from ucp, the memory handle given with each operation,
         blocking flush

-x measures any transport that perftest info -d lists, through the layers that
it has; several, as in -x sm,tcp, one after the other into one table. In tests
of messages (am_, tag_, stream_) and in put_pp the target takes part, in a
polling loop of its own; in the other tests only if the transport needs it. -D
picks the variant of UCT, or the layout of UCP's messages on both sides. What a
transport cannot do is an error when one size is asked for, and left out of a
range.

Queue lengths are the same in all layers and come from the variables of the
transport, such as GUCX_RC_*; see perftest info -c. Without -x, GUCX_TLS and
GUCX_NET_DEVICES choose the transport. Times are read from the processor's
counter; what the loop and the readings themselves cost is measured and taken
off. While the clock runs there is no garbage collection and nothing allocates.
-n counts operations of up to 8 KiB; of longer ones there are as many as move
the same number of bytes.

-T N has N goroutines on each side post and wait at once, through ucp, and
prints what all did and what each one did; several numbers (-T 1,2,4,8), or
several modes, make one table of what all did. Goroutine i talks to goroutine i
of the target. -M says how they have workers: single, one each, as in
ucx_perftest; serialized, one worker under a lock of the program; multi, one
SharedWorker. Nothing is pinned then, and flags of other measurements are
refused. Tests are those of am, tag, put and get.

--counters runs the operations once more and tells for each row how many system
calls, context switches, page faults and packets one operation takes, on both
sides. With root or CAP_BPF it counts by eBPF programs, else by the kernel's
software counters or getrusage, and says which and why.

Exit status: 0 well, 1 failed, 2 wrong usage, 3 data was wrong, 77 skipped,
128+n signal n. A run that ends early prints the rows that it has measured, says
so in its heading, and ends with that status. docs/perftest.md explains method
and columns.`

const examples = `  perftest                                  the comparison
  perftest --full                           at all powers of two up to 1 MiB
  perftest -s 8 -t put_lat,fadd_lat,flush   three tests of 8 bytes
  perftest -s 1-64k -o csv > a.csv          powers of two from 1 B to 64 KiB
  perftest --plot put.svg                   curves beside the table
  perftest --stop-peer -s 8                 with the target process stopped
  perftest -x sm -t am_lat,am_mr -s 8       active messages over shared memory
  perftest -x sm,tcp,rc -t put_lat -s 8     transports beside each other
  perftest -x tcp -t put_bw -D zcopy        one variant of UCT over sockets
  perftest -x sm -t tag_bw -D iov,generic   messages from lists and callbacks
  perftest -x tcp -t am_lat --counters      system calls and switches as well
  perftest -x sm -T 4 -M multi -t tag_mr    four goroutines that share a worker
  perftest -x sm -s 8 -T 1,4 -M multi       what sharing a worker costs
  perftest -b FILE                          a line of flags after the other
  perftest server & perftest client         the two ends in two shells
  perftest ranks                            messages and collectives of ranks
  perftest info -d                          devices, transports and their limits
  perftest info -p -t tcp                   lanes, protocols by length, and why
  perftest instructions                     count instructions instead of time
  perftest compare-ucx                      the transports beside ucx_perftest`

// helpWidth is how wide help is, in columns: its texts are written so, its flags wrapped.
const helpWidth = 80

// wrapFlags changes cobra's template for it.
var wrapFlags = strings.NewReplacer("Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpWidth))

// helpPrinter prints the help of commands. cobra by itself does not tell that it could not.
type helpPrinter struct {
	print func(cmd *cobra.Command, args []string) // into the output of cmd
	err   error                                   // of writing help
}

// bind has root and the commands below it print their help by h.
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
