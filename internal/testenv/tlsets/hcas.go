package tlsets

import (
	"fmt"
	"testing"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// HCAs returns a set of a transport over n software HCAs at each end, whose memory domains have separate keys.
func HCAs(name string, n int, tls string) Set {
	open := SoftHCAs(n)
	return Set{
		Name: name, TLS: config.Allow(tls),
		Open: func(testing.TB) (a, b []uct.Component) { return open(), open() },
	}
}

// SoftHCAs returns a function that opens all transports over n software HCAs.
func SoftHCAs(n int) func() []uct.Component {
	devices := func() (list []*verbs.Device, err error) {
		for i := range n {
			d, err := softhca.NewDevice(softhca.Config{Name: fmt.Sprint("softhca", i)})
			if err != nil {
				return nil, err
			}
			list = append(list, d)
		}
		return list, nil
	}
	return func() []uct.Component { return Components(all.Config{Devices: devices}) }
}
