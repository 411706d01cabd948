package endpoint

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Category is a way of sharing between the threads of a process. The value is
// text, as in a configuration.
type Category uint8

// Categories, from the fastest and dearest to the slowest and cheapest but for the
// first two: MPIEverywhere has no sharing at all, yet pays for the lock of its QP.
const (
	// MPIEverywhere gives each thread a context, as if it were a process.
	MPIEverywhere Category = iota
	// TwoXDynamic is Dynamic with twice the thread domains and QPs, half of which
	// nobody uses.
	TwoXDynamic
	// Dynamic shares the context; each thread has a thread domain with a UAR page.
	Dynamic
	// SharedDynamic is Dynamic with a UAR page for two threads.
	SharedDynamic
	// Static shares the context and the micro-UARs that come with it.
	Static
	// MPIThreads shares one QP and one CQ.
	MPIThreads
)

var categoryNames = [...]string{"MPI-everywhere", "2xDynamic", "Dynamic", "SharedDynamic", "Static", "MPI+threads"}

// Categories lists all.
func Categories() []Category {
	return []Category{MPIEverywhere, TwoXDynamic, Dynamic, SharedDynamic, Static, MPIThreads}
}

// String is the name in the study.
func (c Category) String() string {
	if int(c) < len(categoryNames) {
		return categoryNames[c]
	}
	return fmt.Sprintf("Category(%d)", uint8(c))
}

// ParseCategory finds a category by its name, in any case. ErrInvalidParam, with
// the names that there are.
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

// Plan is the category for n threads.
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
