// Package gucx opens contexts of package ucp with all transports, configured by the environment:
//
//	c, err := gucx.Open()
//
// Environment variables have UCX's names and syntax with the prefix GUCX_: GUCX_TLS=sm,tcp
// selects transports, GUCX_NET_DEVICES selects devices, GUCX_LOG_LEVEL=debug sets the level of the
// log, and each transport has variables of its own, such as GUCX_TCP_DEVICES. An unknown
// name is an error, whose text contains the most similar known name; "perftest info -c"
// lists all variables. [ucp.NewContext] does not read the environment and uses the transports in
// its arguments.
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
	// Tables is the configuration of these transports. It is read before Components is called.
	Tables []config.Table
	// Components makes the transports; nil means none.
	Components func() []uct.Component
}

// Config is the configuration that the environment can set. The zero value is the default.
type Config struct {
	// Log is the log of the process; the zero value does not change it.
	Log log.Config
	UCP ucp.Config
	UCT all.Config
	Own Own
}

// FromEnv reads the variables in environ, such as os.Environ(), that begin with GUCX_. The
// error joins a *config.Error with the name for each variable that is wrong.
func FromEnv(environ []string, own Own) (Config, error) {
	c := Config{Own: own}
	err := config.FromEnv(environ, c.Tables()...)
	return c, err
}

// Tables returns the parts of c, for config.FromEnv and config.Print.
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

// Open sets the log and opens a context. It opens devices, which may block. Errors: those of ucp.NewContext, and of
// opening the file of the log. Several contexts may be open.
func (c *Config) Open() (*ucp.Context, error) {
	if err := applyLog(c.Log); err != nil {
		return nil, fmt.Errorf("gucx: log: %w", err)
	}
	return ucp.NewContext(c.UCP, c.Components()...)
}

// Open calls FromEnv and then Config.Open: it opens a context with all transports of package all, configured by
// the environment, and with components, which have no configuration in the environment. It opens devices, which may
// block. The text of an error contains the variable that is wrong, or the transport or device that was not found.
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

// applyLog sets the log of the process, unless it was set to c before.
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
