// Package invariants tells whether the build checks what must hold if gucx has
// no bug. With -tags invariants a broken invariant panics; without it the checks
// are gone and the object fails with ucs.ErrInternal where that can be told.
//
//	if invariants.Enabled && r.tail-r.head > depth {
//		panic(...)
//	}
package invariants

import "fmt"

// Assert panics with the formatted text unless ok holds. It does nothing in
// builds without the tag, but its arguments are still evaluated: on a data path
// guard the call with Enabled.
func Assert(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("broken invariant: " + fmt.Sprintf(format, args...))
	}
}
