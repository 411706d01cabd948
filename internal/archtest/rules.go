// Package archtest checks the import directions and the file rules of the
// repository. [Rules] defines the directions; check.go has the other rules. The
// test of this package applies both to the whole tree, with all build tags. It
// needs neither a network nor other tools.
package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Rules are the import directions. A line has a group of folders, the groups of this
// module that it may import, and after the bar the groups that only its tests may import.
// A folder belongs to the group with the longest matching name. Folders of a group may
// import each other. A line whose name has a dot in its first part is for another module:
// it lists the groups that may import the module (* means all), and those whose tests may.
const Rules = `
# services: know no transports
internal/cpuid
internal              ucs internal/cpuid
internal/memtp        uct uct/base ucs internal
internal/testenv/tlsets uct uct/all ucs internal uct/ib/verbs uct/ib/verbs/softhca
internal/testenv/workeraddr wireup uct ucs
internal/testenv/faketp uct uct/base ucs internal internal/testenv/tlsets
internal/testenv/ucppair ucp uct uct/all ucs internal internal/testenv/tlsets internal/testenv/faketp
ucs                   internal

# the InfiniBand stack below the transports
uct/ib/verbs          ucs internal                                   | uct/ib/verbs/rxe uct/ib/verbs/mlx5 uct/ib/verbs/softhca uct/ib/internal/hwfault
internal/mlx5/prm uct/ib/verbs ucs internal
internal/uverbs uct/ib/verbs ucs internal
uct/ib/verbs/rxe      internal/uverbs uct/ib/verbs ucs internal  | uct uct/ib uct/ib/rc uct/ib/ud uct/ucttest
uct/ib/verbs/connectx internal/mlx5/adapter internal/uverbs uct/ib/verbs/mlx5 uct/ib/verbs ucs | uct uct/ib uct/ib/rc uct/ib/ud uct/ib/xrc uct/ib/dv uct/ib/verbs/softhca internal/mlx5/fakekernel internal/mlx5/provider internal/mlx5/prm internal uct/ucttest
internal/mlx5/adapter internal/uverbs uct/ib/verbs/mlx5 internal/mlx5/provider internal/mlx5/prm uct/ib/verbs ucs internal
internal/mlx5/fakekernel internal/mlx5/adapter internal/uverbs uct/ib/verbs/mlx5 internal/mlx5/provider internal/mlx5/prm uct/ib/verbs/softhca uct/ib/verbs ucs internal
uct/ib/verbs/mlx5     internal/mlx5/prm ucs
internal/mlx5/provider uct/ib/verbs/mlx5 internal/mlx5/prm uct/ib/verbs ucs internal | uct/ib/verbs/softhca
uct/ib/verbs/softhca  internal/softhca uct/ib/verbs/mlx5 uct/ib/verbs
internal/softhca      internal/softhca/timing internal/mlx5/prm internal/mlx5/provider uct/ib/verbs/mlx5 uct/ib/verbs ucs internal
internal/softhca/timing ucs

# the contract, what helps to keep it, and who tells whether it is kept
uct                   ucs                                            | internal uct/self
uct/base              uct ucs internal
uct/internal          uct uct/base ucs internal
uct/targetop          uct uct/internal ucs                           | internal
uct/wrap              uct uct/base                                    | uct/ucttest uct/self ucs internal internal/memtp
uct/ucttest           uct uct/base uct/wrap ucs internal              | internal/memtp

# transports: never sideways
uct/self              uct uct/base uct/targetop uct/internal ucs internal         | uct/ucttest
uct/sm                uct uct/base uct/targetop uct/internal ucs internal         | uct/ucttest
uct/tcp               uct uct/base uct/targetop uct/internal uct/tcp/internal ucs internal | uct/ucttest
uct/ucxtcp            uct uct/base uct/internal ucs internal                       | uct/ucttest
uct/tcp/internal      uct/internal ucs internal
uct/ib                uct uct/base uct/internal uct/ib/verbs ucs internal         | uct/all uct/ib/rc uct/ib/ud uct/ib/verbs/mlx5 uct/ib/verbs/softhca
uct/ib/internal       uct uct/base uct/internal uct/ib uct/ib/verbs ucs internal          | uct/ucttest uct/ib/internal/ibtest uct/ib/rc uct/ib/ud uct/ib/dv uct/ib/verbs/softhca
uct/ib/internal/ibtest uct uct/ucttest uct/ib uct/ib/verbs uct/ib/verbs/mlx5 uct/ib/verbs/softhca uct/ib/internal/hwfault internal
uct/ib/internal/hwfault uct/ib/verbs uct/ib/verbs/mlx5 internal/mlx5/provider internal/mlx5/prm
uct/ib/rc             uct uct/base uct/internal uct/ib uct/ib/internal uct/ib/verbs ucs internal | uct/ucttest uct/ib/internal/ibtest uct/ib/verbs/softhca
uct/ib/xrc            uct/ib uct/ib/internal | uct uct/ib/verbs uct/ib/verbs/softhca
uct/ib/ud             uct uct/base uct/internal uct/ib uct/ib/internal uct/ib/verbs ucs internal | uct/ucttest uct/ib/internal/ibtest uct/ib/verbs/softhca
uct/ib/dv             uct uct/base uct/internal uct/ib uct/ib/internal uct/ib/verbs uct/ib/verbs/mlx5 internal/mlx5/provider internal/mlx5/prm ucs internal | uct/ucttest uct/ib/internal/ibtest uct/ib/rc uct/ib/ud uct/ib/verbs/softhca

# the one list of transports
uct/all               uct uct/self uct/sm uct/tcp uct/ib uct/ib/rc uct/ib/ud uct/ib/dv uct/ib/xrc uct/ib/verbs uct/ib/verbs/connectx uct/ib/verbs/rxe uct/ib/verbs/softhca ucs internal

# above the contract: no concrete transport but in tests
wireup                uct ucs internal
ucp/internal/selection wireup uct ucs                                | internal internal/testenv/workeraddr
ucp/internal/handshake ucp/internal/selection wireup uct ucs internal | internal/testenv/workeraddr
ucp/internal/wire     wireup uct ucs internal
ucp/internal/engine   uct ucs internal
ucp/internal/conn     ucp/internal/selection wireup uct ucs internal
ucp/internal/lane     ucp/internal/handshake wireup uct ucs internal
ucp/internal/match    internal
ucp/internal/waitqueue                                               | internal
ucp/internal/window                                                  | internal
ucp/internal/proto    uct
ucp/internal/tuple    ucp/internal/match ucp/internal/wire uct ucs
ucp/internal/data     uct ucs                                        | internal
ucp/internal/regcache uct ucs internal                               | ucp/internal/region uct/all
ucp/internal/bootstrap wireup ucs internal
ucp/internal/region   ucp/internal/wire uct uct/targetop ucs internal
ucp                   ucp/internal/bootstrap ucp/internal/conn ucp/internal/data ucp/internal/handshake ucp/internal/selection ucp/internal/lane ucp/internal/engine ucp/internal/match ucp/internal/proto ucp/internal/region ucp/internal/regcache ucp/internal/tuple ucp/internal/waitqueue ucp/internal/window ucp/internal/wire wireup uct ucs internal                        | uct/all gucx uct/wrap uct/base uct/internal uct/ucttest uct/tcp uct/ib uct/ib/rc uct/ib/ud uct/ib/verbs uct/ib/verbs/softhca internal/memtp internal/testenv/tlsets internal/testenv/faketp internal/testenv/ucppair
ucp/ucxpeer           ucp/internal/data ucp/internal/engine ucp/internal/match uct uct/targetop uct/ucxtcp ucs internal
ucp/ucpnet            ucp ucs                                        | uct uct/all gucx internal
ucp/ucprpc            ucp ucs                                        | uct uct/all gucx internal
ucp/ucpdebug          ucp ucs                                        | uct uct/all uct/sm gucx internal
ucp/ucpprom           ucp ucp/ucpdebug ucs                           | gucx
ucp/ucpgroup          ucp ucs internal                               | uct uct/all gucx ucp/ucpgroup/pmi
ucp/ucpgroup/pmi      ucp ucp/ucpgroup ucs                           | internal uct/all gucx

# all of it, as the environment says: the package at the root
gucx                  ucp uct uct/all ucs                            | internal

# perftest: folders, each above those that it names; bench and info import more than theirs
perftest                      perftest/perf
perftest/perf                 gucx perftest/internal/cli uct ucs | uct/ucttest internal/memtp
perftest/internal/measure     internal/cpuid | internal
perftest/internal/layers      perftest/internal/measure gucx ucp uct uct/ib/rc uct/ib/xrc uct/ib/dv uct/ib/verbs uct/ib/verbs/connectx internal/mlx5/fakekernel uct/ib/verbs/rxe uct/ib/verbs/mlx5 internal/mlx5/provider internal/mlx5/prm uct/ib/verbs/softhca ucs internal | uct/all perftest/internal/measure/bench perftest/internal/peers
perftest/internal/peers       perftest/internal/measure perftest/internal/layers internal
perftest/internal/measure/bench perftest/internal/measure perftest/internal/layers perftest/internal/peers | internal
perftest/internal/show        perftest/internal/measure
perftest/internal/probes      perftest/internal/measure perftest/internal/layers perftest/internal/show perftest/internal/show/quantity ucp uct uct/self uct/sm uct/ib/rc uct/ib/dv uct/ib/ud uct/ib/verbs uct/ib/verbs/softhca internal
perftest/internal/studies     perftest/internal/measure perftest/internal/measure/bench perftest/internal/peers perftest/internal/show uct/ib/verbs uct/ib/verbs/mlx5 uct/ib/verbs/softhca internal/softhca internal/softhca/timing internal | perftest/internal/layers
perftest/internal/studies/hwcheck ucs uct/ib/verbs internal | uct/ib/verbs/mlx5 internal/mlx5/fakekernel uct/ib/verbs/softhca
perftest/internal/studies/protocol
perftest/internal/studies/cluster ucp wireup uct uct/all uct/sm uct/wrap ucs uct/ib/verbs internal/softhca internal/softhca/timing internal
perftest/internal/studies/overlap gucx ucp ucs uct perftest/internal/studies/cluster perftest/internal/studies/protocol perftest/internal/measure perftest/internal/peers perftest/internal/show internal/softhca/timing internal
perftest/internal/studies/sp gucx ucp ucp/ucpgroup perftest/internal/show perftest/internal/studies/protocol internal
perftest/internal/studies/spmodel ucp perftest/internal/show perftest/internal/studies/cluster perftest/internal/studies/overlap perftest/internal/studies/protocol perftest/internal/studies/sp internal/softhca/timing internal
perftest/internal/studies/ranks ucp/ucpgroup perftest/internal/show perftest/internal/studies/protocol | gucx ucp uct/all internal
perftest/internal/studies/ranksmodel gucx ucp ucp/ucpgroup uct uct/sm perftest/internal/show perftest/internal/studies/cluster perftest/internal/studies/ranks internal/softhca/timing internal
perftest/internal/studies/kernel ucp/ucpgroup perftest/internal/measure perftest/internal/show | gucx ucp internal
perftest/internal/studies/kernel/kerneltest gucx ucp ucp/ucpgroup perftest/internal/studies/kernel internal
perftest/internal/studies/su3 ucp/ucpgroup perftest/internal/studies/kernel | perftest/internal/studies/kernel/kerneltest internal
perftest/internal/studies/lj ucp/ucpgroup perftest/internal/studies/kernel | perftest/internal/studies/kernel/kerneltest internal
perftest/internal/studies/footprint ucp uct uct/ib uct/ib/rc uct/ib/dv uct/ib/ud uct/ib/verbs uct/ib/verbs/softhca perftest/internal/show internal
perftest/internal/studies/kv examples/kv/kvstore gucx ucp perftest/internal/peers perftest/internal/show internal
perftest/internal/studies/threads ucp perftest/internal/measure perftest/internal/peers perftest/internal/show internal | gucx uct/all
perftest/internal/studies/interop ucp/ucxpeer uct ucs perftest/internal/measure perftest/internal/show internal
perftest/internal/show/quantity ucs
perftest/internal/show/info   perftest/internal/measure perftest/internal/layers perftest/internal/show perftest/internal/studies perftest/internal/studies/interop ucp uct uct/ib uct/ib/xrc uct/ib/verbs internal/mlx5/prm uct/ucxtcp ucs internal
perftest/internal/cli         *

# programs, and a store that perftest measures
examples              examples/kv/kvstore gucx ucp ucp/ucpnet ucp/ucprpc ucp/ucxpeer ucp/ucpgroup ucp/ucpgroup/pmi uct uct/base uct/ib ucs perftest/perf      | uct/ucttest
examples/kv/kvstore   ucp ucp/ucprpc uct ucs                         | gucx internal

# modules                     in programs and helpers of tests        | in all tests
golang.org/x/sys              *
go.uber.org/atomic            *
github.com/stretchr/testify   uct/ucttest uct/ib/internal/rctest uct/ib/internal/ibtest perftest | *
golang.org/x/net                                                     | ucp/ucpnet
pgregory.net/rapid            uct/ucttest                            | *
github.com/anishathalye/porcupine uct/ucttest                        | *
go.uber.org/goleak            internal/testenv uct/ucttest           | *
github.com/cilium/ebpf        perftest/internal/probes/bpfcount
github.com/spf13/cobra        perftest
github.com/spf13/pflag        perftest
github.com/jedib0t/go-pretty  perftest
github.com/vbauerster/mpb     perftest
github.com/HdrHistogram/hdrhistogram-go perftest
gonum.org/v1                  perftest
golang.org/x/perf             perftest
github.com/prometheus/client_golang ucp/ucpprom
google.golang.org/grpc        examples/grpc
google.golang.org/protobuf    examples/grpc
`

// everywhere in a list permits all groups.
const everywhere = "*"

// permit is one line: the groups for the code, and the additional groups for its tests.
type permit struct {
	code, tests []string
}

// allows reports whether a file, or test file, may import name.
func (p permit) allows(name string, inTest bool) bool {
	in := func(list []string) bool { return slices.Contains(list, name) || slices.Contains(list, everywhere) }
	return in(p.code) || inTest && in(p.tests)
}

// directions are the parsed rules.
type directions struct {
	groups  map[string]permit // folder: groups it may import
	modules map[string]permit // module: folders that may import it
}

// parseRules parses a text in the format of Rules.
func parseRules(text string) (directions, error) {
	d := directions{groups: map[string]permit{}, modules: map[string]permit{}}
	for n, line := range strings.Split(text, "\n") {
		code, tests, _ := strings.Cut(line, "|")
		words := strings.Fields(code)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		into := d.groups
		if isModule(words[0]) {
			into = d.modules
		}
		if _, twice := into[words[0]]; twice {
			return directions{}, fmt.Errorf("line %d: %s is there twice", n+1, words[0])
		}
		into[words[0]] = permit{code: words[1:], tests: strings.Fields(tests)}
	}
	return d, d.checkNames()
}

// checkNames returns an error if a line permits a group that does not exist, such as a misspelled name.
func (d directions) checkNames() error {
	for _, group := range sorted(d.groups) {
		for _, name := range slices.Concat(d.groups[group].code, d.groups[group].tests) {
			if _, known := d.groups[name]; !known && name != everywhere {
				return fmt.Errorf("%s may import %s, which is no group", group, name)
			}
		}
	}
	return nil
}

// groupOf returns the longest group that contains the folder, or "".
func (d directions) groupOf(folder string) string {
	if folder == "" || folder == "." {
		folder = rootGroup
	}
	return longest(d.groups, folder)
}

// rootGroup is the name of the root of the tree in Rules.
const rootGroup = "gucx"

// moduleOf returns the longest module path that contains the import path, or "".
func (d directions) moduleOf(path string) string { return longest(d.modules, path) }

// longest returns the longest key that is path or a folder above it, or "".
func longest[V any](keys map[string]V, path string) string {
	for {
		if _, ok := keys[path]; ok {
			return path
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return ""
		}
		path = path[:i]
	}
}

// isModule reports whether an import path is that of another module, whose first part is a host name, and not of the
// standard library or a folder of this module.
func isModule(path string) bool {
	host, _, _ := strings.Cut(path, "/")
	return strings.Contains(host, ".")
}

// sorted returns the sorted keys.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
