package instr

import "strings"

// Part is a part of the program by which instructions are counted: a layer, the device below all
// layers, or the measuring program itself.
type Part uint8

// Parts from the lowest to the highest.
const (
	Device  Part = iota // the software HCA; with hardware, silicon
	Verbs               // verbs objects and the mlx5 driver
	AVerbs              // mlx5 queues without the verbs library: "accelerated verbs" of the study of UCX
	UCT                 // the transport
	UCP                 // ucp and its wireup
	harness             // perftest: not counted
	numParts
)

// services marks packages that work for their callers: the standard library, ucs and internal.
const services = numParts

var partNames = [numParts]string{"device", "verbs", "averbs", "uct", "ucp", "harness"}

// String returns the name in lower case.
func (p Part) String() string {
	if p < numParts {
		return partNames[p]
	}
	return "services"
}

// module is the import path of the repository, with a slash.
const module = "github.com/gucx/gucx/"

// parts maps package trees of the module to parts; the longest match wins.
var parts = []struct {
	tree string
	part Part
}{
	{"uct/ib/verbs/softhca", Device},
	{"internal/softhca", Device},
	{"uct/ib/verbs", Verbs},
	{"internal/mlx5", Verbs},
	{"internal/uverbs", Verbs},
	{"uct", UCT},
	{"wireup", UCP},
	{"ucp", UCP},
	{"perftest/internal/layers/averbslayer/queue", AVerbs},
	{"perftest", harness},
}

// partOf returns the part of a package, or services.
func partOf(pkg string) Part {
	rel, ours := strings.CutPrefix(pkg, module)
	if !ours {
		return services
	}
	for _, p := range parts {
		if rel == p.tree || strings.HasPrefix(rel, p.tree+"/") {
			return p.part
		}
	}
	return services
}

// packageOf returns the import path in a function name of the runtime, such as
// "github.com/gucx/gucx/ucp.(*EP).Put": up to the first dot after the last slash.
func packageOf(function string) string {
	// The brackets of a generic function may contain import paths.
	name, _, _ := strings.Cut(function, "[")
	slash := strings.LastIndexByte(name, '/')
	dot := strings.IndexByte(name[slash+1:], '.')
	if dot < 0 {
		return name
	}
	return name[:slash+1+dot]
}
