package ucp

import (
	"testing"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// real are transports that gucx has, selected by name; ib is over the software HCA.
// Each end opens domains and devices of its own. Without names it is all of them.
func real(name string, tls ...string) transports {
	set := transports{name: name, open: func(testing.TB) (a, b []uct.Component) {
		return all.Components(), all.Components()
	}}
	if len(tls) > 0 {
		set.tls = config.Allow(tls...)
	}
	return set
}

// realSets are each transport by itself, as far as it can carry operations, and
// several together.
func realSets() []transports {
	self := real("self", "self")
	self.oneself = true
	return []transports{
		self,
		real("sm", "sm"),
		real("tcp", "tcp"),
		real("rc", "rc"), // ud carries the handshakes
		real("rc+ud", "rc", "ud"),
		real("rc+tcp", "rc", "tcp"),
		real("sm+self+tcp", "sm", "self", "tcp"),
		real("all"),
	}
}
