// Package invariants enables checks of conditions that hold if gucx has
// no bug. With -tags invariants a broken invariant panics. Without it there are no checks; if the code
// nevertheless detects a broken invariant, the object fails with ucs.ErrInternal.
//
//	if invariants.Enabled && r.tail-r.head > depth {
//		panic(...)
//	}
package invariants

import "fmt"

// Assert panics with the formatted text if ok is false. It does nothing in
// builds without the tag, but its arguments are still evaluated: on a data path
// guard the call with Enabled.
func Assert(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("broken invariant: " + fmt.Sprintf(format, args...))
	}
}
