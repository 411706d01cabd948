package ucp

import (
	"testing"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// real are the transports that gucx has, over the software HCA: each end opens a
// device of its own.
func real() transports {
	return transports{"ib", func(testing.TB) (a, b []uct.Component) {
		return all.Components(), all.Components()
	}}
}
