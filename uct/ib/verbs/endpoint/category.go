package endpoint

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Category defines which verbs objects the threads of a process share. Its text form is the name in the study, as in a
// configuration.
type Category uint8

// Categories, in the order of decreasing message rate and decreasing use of resources. The exception is MPIEverywhere:
// its threads share nothing, but a post takes the lock of its QP, so it is slower than TwoXDynamic.
const (
	// MPIEverywhere creates a context for each thread, as for a process.
	MPIEverywhere Category = iota
	// TwoXDynamic is Dynamic with twice as many thread domains, QPs and CQs; half of them are not used.
	TwoXDynamic
	// Dynamic shares the context. Each thread has a thread domain with its own UAR page.
	Dynamic
	// SharedDynamic is Dynamic with one UAR page for two threads.
	SharedDynamic
	// Static shares the context and its statically allocated micro-UARs.
	Static
	// MPIThreads shares one context, one QP and one CQ among all threads.
	MPIThreads
)

var categoryNames = [...]string{"MPI-everywhere", "2xDynamic", "Dynamic", "SharedDynamic", "Static", "MPI+threads"}

// Categories returns all categories.
func Categories() []Category {
	return []Category{MPIEverywhere, TwoXDynamic, Dynamic, SharedDynamic, Static, MPIThreads}
}

// String returns the name of the category in the study.
func (c Category) String() string {
	if int(c) < len(categoryNames) {
		return categoryNames[c]
	}
	return fmt.Sprintf("Category(%d)", uint8(c))
}

// ParseCategory returns the category with the given name, in upper or lower case. Error: ErrInvalidParam for an unknown
// name, with the known names in the text.
func ParseCategory(name string) (Category, error) {
	for i, n := range categoryNames {
		if strings.EqualFold(n, name) {
			return Category(i), nil
		}
	}
	return 0, fmt.Errorf("endpoint category %q: want one of %s: %w", name, strings.Join(categoryNames[:], ", "), ucs.ErrInvalidParam)
}

// MarshalText implements encoding.TextMarshaler.
func (c Category) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Category) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCategory(string(text))
	return err
}

// Plan returns the plan of the category for n threads.
func (c Category) Plan(n int) Plan {
	shared := Plan{Context: n, PD: n, CQ: 1, QP: 1}
	switch c {
	case TwoXDynamic:
		shared.Domain, shared.Spare = 1, true
	case Dynamic:
		shared.Domain = 1
	case SharedDynamic:
		shared.Domain = 2
	case Static:
	case MPIThreads:
		shared.CQ, shared.QP = n, n
	default:
		return Plan{Context: 1, PD: 1, CQ: 1, QP: 1}
	}
	return shared
}
