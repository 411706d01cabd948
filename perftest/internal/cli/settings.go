package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/averbslayer"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/perftest/internal/layers/uctlayer"
	"github.com/gucx/gucx/perftest/internal/layers/verbslayer"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
	"github.com/gucx/gucx/perftest/internal/probes/counters"
	"github.com/gucx/gucx/perftest/internal/show/change"
	"github.com/gucx/gucx/perftest/internal/show/chart"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/interop"
	"github.com/gucx/gucx/perftest/internal/studies/threads"
	"github.com/gucx/gucx/uct"
)

// Defaults of the flags.
const (
	// defaultSizes are below the limits of inline data, of bcopy, and of caches.
	defaultSizes      = "8,64,512,4k,32k,256k,1m"
	fullSizes         = "1-1m"
	defaultIterations = 100_000
	defaultWarmup     = 2_000
	defaultRounds     = 20
	defaultWindow     = 256 // as in the study that the comparison follows
	defaultTransport  = "rc"
)

// settings are the flags of a measurement.
type settings struct {
	own        gucx.Own // of the program
	tests      []string
	sizes      string
	full       bool
	layers     []string
	iterations int
	warmup     int
	rounds     int
	window     int
	wildcard   bool
	unexpected bool
	transport  string
	dataLayout string
	device     string
	fabric     string
	cpus       string
	output     string
	plot       string
	save       string // file
	rank       float64
	histogram  bool
	probe      bool
	quiet      bool
	memory     string
	registered bool
	wait       string
	stopPeer   bool
	counters   string // source of counters; empty for none
	batch      string // file
	threads    []int
	peer       string // program of the other process; empty: gucx
	modes      []string
	pairs      []int
}

func (s *settings) bind(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringSliceVarP(&s.tests, "test", "t", nil, "tests to run, or all: "+strings.Join(bench.TestNames(), " ")+" (default "+strings.Join(bench.DefaultTests(), ",")+")")
	f.StringVarP(&s.sizes, "size", "s", "", "message sizes in bytes: 8,1k,64k; 1-1m for powers of two; 1-1m/4 for every second of them; 0 for empty messages (default "+defaultSizes+")")
	f.BoolVar(&s.full, "full", false, "all powers of two from 1 B to 1 MiB: -s "+fullSizes)
	quantity.Count(f, &s.iterations, "iters", "n", defaultIterations, "operations of each test, size and layer, such as 20k or 1m")
	quantity.Count(f, &s.warmup, "warmup", "w", defaultWarmup, "warm-up operations, not timed; fewer above 8 KiB")
	f.IntVar(&s.rounds, "rounds", defaultRounds, "rounds in which the layers alternate")
	quantity.Count(f, &s.window, "window", "W", defaultWindow, "operations for each flush in bandwidth and rate tests; unacknowledged messages")
	f.BoolVarP(&s.wildcard, "wildcard", "C", false, "receive tagged messages with a mask that matches all tags")
	f.BoolVarP(&s.unexpected, "unexpected", "U", false, "receive tagged messages only after a probe has found them")
	f.StringVarP(&s.transport, "transport", "x", "", "transport, of those that perftest info -d lists; several for one table: sm,tcp (default "+defaultTransport+", or what GUCX_TLS and GUCX_NET_DEVICES leave)")
	f.StringVarP(&s.dataLayout, "data-layout", "D", "", "uct: variant of operations, "+strings.Join(layer.Variants(), ", ")+", which the layer else chooses by size; ucp: layout of messages of the sender, or of sender and receiver as in iov,generic: "+strings.Join(layer.LayoutNames(), ", "))
	f.StringVar(&s.memory, "memory", layer.MemoryNames()[0], "memory of both sides: alloc, allocated by the transport; mapped, of the process and registered, over sm that is cross-memory attach; plain, ucp alone, of the process and not named in messages")
	f.BoolVar(&s.registered, "registered", false, "--memory mapped --layers uct")
	f.StringVarP(&s.wait, "wait", "E", waitPoll, "how both sides wait: poll, or sleep until a message wakes them, ucp only")
	f.StringSliceVar(&s.layers, "layers", nil, "layers to compare, of "+strings.Join(layers.Names(), ",")+"; ucp without remedies (perftest.md): "+strings.Join(layers.WithoutRemedies(), ", ")+" (default those that the transport has but averbs; with -D the one that it is for)")
	f.StringVarP(&s.device, "device", "d", "", "device, such as softhca0:1 (default the first one that the environment permits)")
	f.StringVarP(&s.fabric, "fabric", "f", device.Fabrics()[0], "fabric of the software HCA: "+strings.Join(device.Fabrics(), ", ")+"; on loop the target is in the same process")
	f.StringVarP(&s.cpus, "cpus", "c", "auto", "CPUs of initiator and target: 1,0; auto: two different ones; off: no pinning")
	f.StringVarP(&s.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.StringVar(&s.plot, "plot", "", "also plot the results to this file, .svg or .png")
	f.StringVar(&s.save, "save", "", "also append the results to this file, as -o json prints them, for perftest compare")
	f.Float64VarP(&s.rank, "rank", "R", 0, "percentile of Total in the table, instead of p99: 99.99")
	f.BoolVar(&s.histogram, "hist", false, "also print the distribution of the times of latency tests")
	f.BoolVar(&s.probe, "probe", false, "first measure the latency of a cache line between the two CPUs")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
}

// bindLocal adds the flags of a run that starts its own target.
func (s *settings) bindLocal(f *pflag.FlagSet) {
	quantity.Counts(f, &s.threads, "threads", "T", nil, "goroutines on each side that post and wait at the same time; several numbers for one table: 1,2,4 or 1-8. ucp only, tests of am, tag, put, get")
	f.StringVar(&s.peer, "peer", "", "measure with UCX over its tcp, in the tests "+strings.Join(interop.Names(), " ")+": "+peerUCX+" builds a program with it, by gcc, "+peerUCX+"=FILE names one that speaks the same protocol")
	f.StringSliceVarP(&s.modes, "thread-mode", "M", []string{string(threads.Single)}, "how the goroutines of -T have workers, of "+strings.Join(threads.ModeNames(), ",")+": one each, one under a lock of the program, one SharedWorker, a process each")
	quantity.Counts(f, &s.pairs, "pairs", "", nil, "pairs of processes that measure at the same time, as osu_mbw_mr: 1,2,4; it is -T 1,2,4 -M processes")
	f.BoolVar(&s.stopPeer, "stop-peer", false, "stop the target process (SIGSTOP) during the measurement: one-sided operations continue")
	f.StringVar(&s.counters, "counters", "", "count in a pass of its own, after the timed one, what operations ask of the kernel: system calls, context switches, page faults, packets; =SOURCE of "+strings.Join(counters.Choices(), ", "))
	f.Lookup("counters").NoOptDefVal = counters.Auto
	f.StringVarP(&s.batch, "batch", "b", "", "run each line of this file: a title, and flags that are added to those of the command")
}

// job is a checked measurement.
type job struct {
	settings  *settings
	plan      bench.Plan
	config    layers.Config
	transport device.Transport
	cpus      []int // of initiator and target; empty: not pinned
	remote    bool  // the target is a server, perhaps on another host
	remarks   []string
	// emit gets the results instead of write; nil for none.
	emit func(w io.Writer, run result.Run, records []result.Record) error
}

// job checks the settings and the environment. Errors are usage errors.
func (s *settings) job() (*job, error) {
	j := &job{settings: s}
	var err error
	if j.config, err = layers.FromEnv(os.Environ(), s.own); err != nil {
		return nil, &usageError{err}
	}
	if err := j.makePlan(); err != nil {
		return nil, &usageError{err}
	}
	cpus := s.cpus
	if cpus == "auto" && device.PollsMemory() {
		cpus = "off"
	}
	if j.cpus, err = affinity.Pair(cpus); err != nil {
		return nil, &usageError{err}
	}
	if err := sheet.CheckFormat(s.output); err != nil {
		return nil, &usageError{err}
	}
	if err := j.checkPlot(); err != nil {
		return nil, &usageError{err}
	}
	if s.save != "" {
		if err := change.CheckFile(s.save); err != nil {
			return nil, &usageError{err}
		}
	}
	if s.counters != "" {
		if err := counters.Check(s.counters); err != nil {
			return nil, &usageError{err}
		}
	}
	return j, nil
}

var errNoCurve = errors.New("--plot: no test has two sizes or more: see -s")

// checkPlot rejects a file that cannot be written, and results that are no curves.
func (j *job) checkPlot() error {
	if j.settings.plot == "" {
		return nil
	}
	if !slices.ContainsFunc(j.plan.Tests, func(t bench.Test) bool { return len(t.Sizes(j.plan.Sizes)) > 1 }) {
		return errNoCurve
	}
	return chart.Check(j.settings.plot)
}

var errFull = errors.New("--full and -s: only one of them")

// chosenSizes returns the sizes of the flags, or the default.
func (s *settings) chosenSizes() ([]int, error) {
	switch {
	case s.full && s.sizes != "":
		return nil, errFull
	case s.full:
		return parseSizes(fullSizes)
	}
	return sizesFrom(cmp.Or(s.sizes, defaultSizes), 0)
}

// makePlan fills in the plan and the transport.
func (j *job) makePlan() (err error) {
	s, p := j.settings, &j.plan
	*p = bench.Plan{
		Iterations: s.iterations, Warmup: s.warmup, Rounds: min(s.rounds, max(s.iterations, 1)), Window: s.window,
		Wildcard: s.wildcard, Unexpected: s.unexpected, Rank: s.rank, Histogram: s.histogram, Below: layers.Below,
	}
	if err := parseDataLayout(s.dataLayout, p); err != nil {
		return err
	}
	if p.Memory, err = s.chosenMemory(); err != nil {
		return err
	}
	if err := j.chooseWait(); err != nil {
		return err
	}
	if p.Sizes, err = s.chosenSizes(); err != nil {
		return err
	}
	if err := checkFabric(s.fabric); err != nil {
		return err
	}
	if err := j.chooseTransport(); err != nil {
		return err
	}
	switch {
	case j.transport.OverVerbs():
		p.Fabric = s.fabric
	case s.fabric != device.Fabrics()[0]:
		j.remark("-f %s has no effect on %s, which is not over the software HCA", s.fabric, p.Transport)
	}
	caps, err := j.transport.Caps()
	if err != nil {
		return err
	}
	if p.Tests, err = j.findTests(caps); err != nil {
		return err
	}
	j.remarkOnReceives()
	if p.Layers, err = j.findLayers(caps); err != nil {
		return err
	}
	if err := j.checkWait(p.Layers); err != nil {
		return err
	}
	if err := j.checkDataLayout(); err != nil {
		return err
	}
	// A single unsupported size is an error; in a range it is omitted.
	p.Strict = len(p.Sizes) == 1 && !isAll(s.tests)
	p.Missing = len(s.layers) == 0
	return p.Check()
}

// checkFabric rejects a name that is no fabric of the software HCA.
func checkFabric(name string) error {
	if !slices.Contains(device.Fabrics(), name) {
		return fmt.Errorf("fabric %q: there are %s", name, strings.Join(device.Fabrics(), ", "))
	}
	return nil
}

// remarkOnReceives remarks on --wildcard and --unexpected if no test receives tagged messages.
func (j *job) remarkOnReceives() {
	if slices.ContainsFunc(j.plan.Tests, func(t bench.Test) bool { return t.Kind.Tagged() }) {
		return
	}
	if j.settings.wildcard {
		j.remark("-C has no effect without tests of tagged messages")
	}
	if j.settings.unexpected {
		j.remark("-U has no effect without tests of tagged messages")
	}
}

// findTests returns the tests of -t; by default the main comparison, or active messages if the transport has no puts.
func (j *job) findTests(caps uct.Caps) ([]bench.Test, error) {
	s := j.settings
	switch {
	case len(s.tests) == 0 && caps&uct.CapPut != 0:
		return findTests(bench.DefaultTests())
	case len(s.tests) == 0:
		return findTests(bench.MessageTests())
	case isAll(s.tests) && s.stopPeer:
		return slices.DeleteFunc(bench.Tests(), func(t bench.Test) bool { return t.Kind.TwoSided() }), nil
	case isAll(s.tests):
		return bench.Tests(), nil
	}
	return findTests(s.tests)
}

func isAll(tests []string) bool { return len(tests) == 1 && tests[0] == "all" }

// findLayers returns the layers of --layers; by default those of the transport that support -D and the class of memory.
func (j *job) findLayers(caps uct.Caps) ([]string, error) {
	if len(j.settings.layers) > 0 {
		names, err := j.namedLayers()
		return names, cmp.Or(err, j.checkMemory(names))
	}
	switch d := j.dataLayout(); {
	case j.settings.registered:
		return []string{uctlayer.Name}, nil
	case d.text != "":
		return []string{d.layer}, j.checkMemory([]string{d.layer})
	case j.plan.Memory == layer.Plain || j.plan.Sleep:
		return []string{ucplayer.Name}, nil
	}
	return layers.Of(&j.transport, caps), nil
}

// namedLayers returns the layers of --layers, without verbs and averbs if the transport has no verbs device.
func (j *job) namedLayers() ([]string, error) {
	names, err := orderLayers(j.settings.layers)
	if err != nil || j.transport.OverVerbs() {
		return names, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == verbslayer.Name || n == averbslayer.Name })
	if len(names) == 0 {
		return nil, fmt.Errorf("--layers %s: %s is not over a verbs device; it has uct and ucp", strings.Join(j.settings.layers, ","), j.plan.Transport)
	}
	return names, nil
}

func findTests(names []string) (tests []bench.Test, err error) {
	for _, n := range names {
		t, err := bench.FindTest(n)
		if err != nil {
			return nil, err
		}
		if slices.Contains(tests, t) {
			return nil, fmt.Errorf("duplicate test %q", t.Name)
		}
		tests = append(tests, t)
	}
	return tests, nil
}

// orderLayers checks names and sorts them, lowest layer first.
func orderLayers(names []string) (ordered []string, err error) {
	for _, n := range names {
		if !slices.Contains(layers.Measurable(), n) {
			return nil, fmt.Errorf("unknown layer %q; there are %s", n, strings.Join(layers.Measurable(), ", "))
		}
	}
	for _, n := range layers.Measurable() {
		if slices.Contains(names, n) {
			ordered = append(ordered, n)
		}
	}
	return ordered, nil
}

var errProbe = errors.New("--probe needs two different CPUs: see -c")

// check rejects combinations of flags that cannot be measured.
func (j *job) check() error {
	if j.settings.probe && (len(j.cpus) < 2 || j.cpus[0] == j.cpus[1]) {
		return &usageError{errProbe}
	}
	if !j.settings.stopPeer {
		return nil
	}
	if j.plan.Fabric == loopFabric || j.loopback() {
		return &usageError{errors.New("--stop-peer needs a target process; on the loop fabric and on self there is none")}
	}
	for _, t := range j.plan.Tests {
		if t.Kind.TwoSided() {
			return &usageError{fmt.Errorf("--stop-peer: in %s the target must make progress", t.Name)}
		}
	}
	return nil
}

// loopback reports whether the transport reaches its own worker only, which is then its own target.
func (j *job) loopback() bool { return j.transport.Kind == uct.DeviceSelf }

// describe sets the conditions that are known before the measurement.
func (j *job) describe(m result.Machine, commit string, clock *tick.Clock) result.Run {
	var tests []string
	for _, t := range j.plan.Tests {
		tests = append(tests, t.Name)
	}
	name := j.plan.Device
	if name == "" {
		name, _, _ = strings.Cut(j.transport.Device, ":")
	}
	return result.Run{
		Machine: m,
		Commit:  commit,
		Clock: result.Clock{Source: clock.Source, TicksPerNS: clock.PerNS,
			ResolutionNS: clock.Resolution(), CostNS: clock.Cost},
		Settings: result.Settings{
			Device: name, Transport: j.plan.Transport, Fabric: j.plan.Fabric,
			Layers: j.plan.Layers, Tests: tests, Sizes: j.plan.Sizes,
			Iterations: j.plan.Iterations, Warmup: j.plan.Warmup, Rounds: j.plan.Rounds,
			Window: j.plan.Window, Variant: j.dataLayout().text, Memory: j.plan.Memory.String(), Wait: j.waitText(), CPUs: j.cpus, StopPeer: j.settings.stopPeer, Rank: j.plan.Rank,
		},
	}
}
