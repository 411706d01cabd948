package log

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
)

// componentKey is the key of the attribute with the component that logs.
const componentKey = "component"

// For returns the logger of a component: "rc", "ucp". A package may store it in a variable: later calls of Use and Apply
// apply to the logger too.
func For(component string) *slog.Logger {
	return slog.New(relay{}.WithAttrs([]slog.Attr{slog.String(componentKey, component)}))
}

// Hex is a value that is logged in hexadecimal: queue pair numbers, keys.
type Hex uint64

// LogValue formats the number.
func (h Hex) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%#x", uint64(h))) }

// target is the handler that gets all records. It is a pointer, because an interface value cannot be exchanged
// atomically.
var target atomic.Pointer[slog.Handler]

func init() { Use(NewLineHandler(os.Stderr)) }

// Use passes all further records to h. A record is logged if both h and the level of the process enable its level.
func Use(h slog.Handler) { target.Store(&h) }

// relay is the handler of each logger from For. For each record it loads target, and applies the attributes and groups
// that were added to the logger.
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

// in returns a copy of r that also applies enter, which adds attributes or a group.
func (r relay) in(enter func(slog.Handler) slog.Handler) relay {
	return relay{scope: append(slices.Clip(r.scope), enter)}
}
