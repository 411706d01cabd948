package log

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
)

// componentKey is the attribute that names who logs.
const componentKey = "component"

// For returns the logger of a component: "rc", "ucp". It may be made once, in a
// package variable; later calls of Use and Apply take effect on it.
func For(component string) *slog.Logger {
	return slog.New(relay{}.WithAttrs([]slog.Attr{slog.String(componentKey, component)}))
}

// Hex is a value that is logged in hexadecimal: queue pair numbers, keys.
type Hex uint64

// LogValue formats the number.
func (h Hex) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%#x", uint64(h))) }

// target is where records go. It is a pointer to an interface value, as those
// cannot be swapped atomically.
var target atomic.Pointer[slog.Handler]

func init() { Use(NewLineHandler(os.Stderr)) }

// Use sends all records to h from now on. What h says about enabled levels counts
// in addition to the level of the process.
func Use(h slog.Handler) { target.Store(&h) }

// relay is the handler of every logger of For: it looks up the target at each
// record, and gives it the attributes and groups that were added before.
type relay struct {
	scope []func(slog.Handler) slog.Handler
}

// Enabled implements slog.Handler.
func (r relay) Enabled(ctx context.Context, l slog.Level) bool {
	return On(fromSlog(l)) && (*target.Load()).Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (r relay) Handle(ctx context.Context, record slog.Record) error {
	h := *target.Load()
	for _, enter := range r.scope {
		h = enter(h)
	}
	return h.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (r relay) WithAttrs(attrs []slog.Attr) slog.Handler {
	return r.in(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (r relay) WithGroup(name string) slog.Handler {
	return r.in(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

// in is r with one more step into the scope.
func (r relay) in(enter func(slog.Handler) slog.Handler) relay {
	return relay{scope: append(slices.Clip(r.scope), enter)}
}
