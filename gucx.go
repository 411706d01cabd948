// Package gucx opens contexts of package ucp as the environment says, with every
// transport that there is:
//
//	c, err := gucx.Open()
//
// The environment has UCX's names and grammar with the prefix GUCX_: GUCX_TLS=sm,tcp
// chooses transports, GUCX_NET_DEVICES devices, GUCX_LOG_LEVEL=debug says how much is
// logged, and each transport has variables of its own, such as GUCX_TCP_DEVICES. A
// name that nothing knows is an error that tells the nearest one; "perftest info -c"
// lists them all. [ucp.NewContext] reads no environment and takes the transports that
// it is given.
package gucx

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// Own are transports that a program adds to those of package all. The zero value adds
// none.
type Own struct {
	// Tables are their configuration, which is read before Components is called.
	Tables []config.Table
	// Components makes them; nil means none.
	Components func() []uct.Component
}

// Config is all that the environment can set. The zero value is the default.
type Config struct {
	// Log is the log of the process; the zero value leaves it as it is.
	Log log.Config
	UCP ucp.Config
	UCT all.Config
	Own Own
}

// FromEnv reads the variables in environ, such as os.Environ, that begin with GUCX_. The
// error joins all that is wrong with them, each a *config.Error with the name.
func FromEnv(environ []string, own Own) (Config, error) {
	c := Config{Own: own}
	err := config.FromEnv(environ, c.Tables()...)
	return c, err
}

// Tables are the parts of c, for config.FromEnv and config.Print.
func (c *Config) Tables() []config.Table {
	return slices.Concat([]config.Table{c.Log.Table(), c.UCP.Table()}, c.UCT.Tables(), c.Own.Tables)
}

// Components makes the components of package all and then those of the program.
func (c *Config) Components() []uct.Component {
	list := c.UCT.Components()
	if c.Own.Components != nil {
		list = append(list, c.Own.Components()...)
	}
	return list
}

// Open sets the log and opens a context. Errors are those of ucp.NewContext and of
// opening the file of the log. Several contexts may be open.
func (c *Config) Open() (*ucp.Context, error) {
	if err := applyLog(c.Log); err != nil {
		return nil, fmt.Errorf("gucx: log: %w", err)
	}
	return ucp.NewContext(c.UCP, c.Components()...)
}

// Open opens a context with every transport of package all and those of the components
// given, which have no configuration in the environment, as the environment says: it is
// FromEnv and then Config.Open. Blocking: devices are opened. The error says which
// variable is wrong, or which transport or device was not found.
func Open(components ...uct.Component) (*ucp.Context, error) {
	c, err := FromEnv(os.Environ(), Own{Components: func() []uct.Component { return components }})
	if err != nil {
		return nil, fmt.Errorf("gucx: %w", err)
	}
	return c.Open()
}

// applied is the log that Open has set.
var applied struct {
	sync.Mutex
	cfg  log.Config
	file io.Closer
}

// applyLog sets the log of the process, once for contexts that agree.
func applyLog(c log.Config) error {
	applied.Lock()
	defer applied.Unlock()
	if c == applied.cfg || c == (log.Config{}) {
		return nil
	}
	var errs []error
	if applied.file != nil {
		errs = append(errs, applied.file.Close())
	}
	applied.cfg, applied.file = log.Config{}, nil
	file, err := log.Apply(c)
	if err == nil {
		applied.cfg, applied.file = c, file
	}
	return ucs.Join(append(errs, err)...)
}
