package ucp

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Context has the resources that workers share: open memory domains and
// registered memory. Any goroutine may call its methods.
type Context struct {
	cfg      Config
	offers   []offer    // transports on open domains
	found    []offer    // all transports that were found; for Explain
	misnamed error      // a setting of a transport names a device that does not exist
	memory   region.Set // its domains never change

	tls   uct.TLSConfigs // configuration of the tcp sockets of Listen and Dial; nil means no TLS
	token string         // token that sockets of Listen and Dial require; empty means none

	ports bootstrap.Ports // of all workers

	mu      sync.Mutex
	workers int
	later   []io.Closer // objects of closed workers that could not be closed because peers were accessing memory
	closed  bool
}

// offer is a transport on a device, and whether the configuration selects it.
type offer struct {
	uct.Resource
	domain   *region.Domain
	names    []string // names in TLS that select it
	selected bool
	auxOnly  bool   // opened for handshakes, though not selected
	why      string // the criterion that excluded it

	listener netip.AddrPort // address of the listener for which a worker opens the transport; otherwise the zero AddrPort
}

// NewContext opens the memory domains of the components whose transports cfg
// selects. It may block while it opens devices. If no transport is usable, or cfg names a transport or
// device that does not exist, the error matches ErrUnreachable and lists the existing ones and
// the criteria that failed. Close the context after its workers and
// memory.
func NewContext(cfg Config, components ...uct.Component) (_ *Context, err error) {
	if err := cmp.Or(cfg.Validate(), cfg.RCache.Validate()); err != nil {
		return nil, fmt.Errorf("ucp: %w", err)
	}
	c := &Context{cfg: cfg}
	if c.token, err = cfg.token(); err != nil {
		return nil, fmt.Errorf("ucp: %w", err)
	}
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = ucs.Join(err, undo.Run())
		}
	}()
	var failures []error
	for _, comp := range components {
		if err := c.openComponent(comp, &undo); err != nil {
			failures = append(failures, err)
		}
	}
	if c.misnamed != nil {
		return nil, fmt.Errorf("ucp: %w", c.misnamed)
	}
	if err := c.openTLS(); err != nil {
		return nil, fmt.Errorf("ucp: %w", err)
	}
	if err := c.choose(failures); err != nil {
		return nil, err
	}
	c.found = slices.Clone(c.offers)
	return c, c.closeUnused()
}

// openComponent opens all domains of a component and stores their offers. A domain that
// cannot be opened is an error only if the configuration names it.
func (c *Context) openComponent(comp uct.Component, undo *cleanup.Stack) error {
	found, err := comp.MDs()
	if err != nil {
		return fmt.Errorf("%s: %w", comp.Name(), err)
	}
	var errs []error
	for _, res := range found {
		md, err := comp.OpenMD(res.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", comp.Name(), res.Name, err))
			continue
		}
		undo.Add(md.Close)
		err = c.addDomain(md)
		if errors.Is(err, ucs.ErrInvalidParam) && c.cfg.TLS.Allows(comp.Name()) {
			c.misnamed = err
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", comp.Name(), res.Name, err))
		}
	}
	return ucs.Join(errs...)
}

// openTLS reads the certificates of the first domain that requires TLS. The sockets of Listen and
// Dial then require TLS too, also if the transports of the domain are not selected.
func (c *Context) openTLS() (err error) {
	for _, d := range c.memory.Domains {
		if opener := d.MD.Ext().TLS; opener != nil {
			c.tls, err = opener.OpenTLS(bootstrap.Protocol)
			return err
		}
	}
	return nil
}

func (c *Context) addDomain(md uct.MD) error {
	d := c.memory.Add(md)
	resources, err := md.Resources()
	for _, r := range resources {
		c.offers = append(c.offers, offer{Resource: r, domain: d, names: namesOf(&r, d.Attr.Component)})
	}
	return err
}

// choose applies the lists of the configuration.
func (c *Context) choose(failures []error) error {
	if err := c.checkNames(failures); err != nil {
		return err
	}
	for i := range c.offers {
		c.evaluate(&c.offers[i])
	}
	if err := c.checkAsked(); err != nil {
		return ucs.Join(append([]error{err}, failures...)...)
	}
	return nil
}

// evaluate applies the lists to an offer.
func (c *Context) evaluate(o *offer) {
	devices, list := c.cfg.devices(o.Kind)
	switch {
	case o.Explicit && (c.cfg.TLS.Negated() || c.cfg.TLS.Names() == nil):
		o.why = "TLS=" + c.cfg.TLS.String() + " does not name it"
	case !c.cfg.TLS.Allows(o.names...):
		o.why = "TLS=" + c.cfg.TLS.String() + " excludes it"
	case !devices.Allows(o.Device):
		o.why = list + "=" + devices.String() + " excludes " + o.Device
	default:
		o.selected = true
	}
}

// checkNames rejects names of transports and devices that do not exist.
func (c *Context) checkNames(failures []error) error {
	var tls, names []string
	devs := map[uct.DeviceKind][]string{}
	for i := range c.offers {
		tls = append(tls, c.offers[i].Transport)
		names = append(names, c.offers[i].names...)
		devs[c.offers[i].Kind] = append(devs[c.offers[i].Kind], c.offers[i].Device)
	}
	if unknown := c.cfg.TLS.Unknown(names); len(unknown) > 0 {
		return missing("transport", unknown, tls, failures)
	}
	for _, kind := range []uct.DeviceKind{uct.DeviceNet, uct.DeviceShm, uct.DeviceSelf} {
		list, _ := c.cfg.devices(kind)
		if unknown := list.Unknown(devs[kind]); len(unknown) > 0 {
			return missing(kind.String()+" device", unknown, devs[kind], failures)
		}
	}
	return nil
}

func missing(what string, unknown, have []string, failures []error) error {
	slices.Sort(have)
	available := strings.Join(slices.Compact(have), ", ")
	if available == "" {
		available = "none"
	}
	err := fmt.Errorf("ucp: %s %s not found (available: %s): %w",
		what, strings.Join(unknown, ", "), available, ucs.ErrUnreachable)
	return ucs.Join(append([]error{err}, failures...)...)
}

// checkAsked rejects a configuration that names a transport which a device list excludes,
// and a configuration that selects no transport.
func (c *Context) checkAsked() error {
	asked := c.cfg.TLS.Names()
	if c.cfg.TLS.Negated() {
		asked = nil
	}
	for _, name := range asked {
		if !slices.ContainsFunc(c.offers, func(o offer) bool { return o.selected && slices.Contains(o.names, name) }) {
			return fmt.Errorf("ucp: transport %s: %s: %w", name, c.excluded(name), ucs.ErrUnreachable)
		}
	}
	if !slices.ContainsFunc(c.offers, func(o offer) bool { return o.selected }) {
		return fmt.Errorf("ucp: no transport is left: %s: %w", c.excluded(""), ucs.ErrUnreachable)
	}
	return nil
}

// excluded lists the reasons for which offers with this name are not used; "" means all offers.
func (c *Context) excluded(name string) string {
	var why []string
	for i := range c.offers {
		if o := &c.offers[i]; !o.selected && (name == "" || slices.Contains(o.names, name)) {
			why = append(why, o.Transport+"/"+o.Device+": "+o.why)
		}
	}
	if len(why) == 0 {
		return "no component offers one"
	}
	return strings.Join(why, "; ")
}

// closeUnused closes domains without a selected transport. Other transports of an
// open domain may still carry handshakes: a worker
// opens those that it needs; see Worker.open.
func (c *Context) closeUnused() error {
	used := map[*region.Domain]bool{}
	for i := range c.offers {
		used[c.offers[i].domain] = used[c.offers[i].domain] || c.offers[i].selected
	}
	err := c.memory.CloseUnused(func(d *region.Domain) bool { return used[d] })
	c.offers = slices.DeleteFunc(c.offers, func(o offer) bool { return !used[o.domain] })
	if n := len(c.memory.Domains); n > wireup.MaxMDs {
		err = ucs.Join(err, fmt.Errorf("ucp: %d memory domains: %w", n, ucs.ErrTooLong))
	}
	return err
}

// Close closes the memory domains. It returns ErrBusy while a worker or memory of the context
// is open, and ErrBusy joined with *ucs.InUseError while a peer is in the middle of an access to
// memory that an operation has registered: call Close again. Idempotent.
func (c *Context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers > 0 {
		return fmt.Errorf("ucp: close context: %w: close its workers first (open: %d)", ucs.ErrBusy, c.workers)
	}
	if err := c.closeLater(); err != nil {
		return err
	}
	err := c.memory.Close()
	c.closed = !errors.Is(err, ucs.ErrBusy)
	return err
}

// closeOnClose makes Close close an object that a closed worker could not close. Any goroutine may call it.
func (c *Context) closeOnClose(x io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.later = append(c.later, x)
}

// closeLater closes the objects that workers could not close. The caller must hold mu.
func (c *Context) closeLater() error {
	for len(c.later) > 0 {
		if err := c.later[0].Close(); err != nil {
			return err
		}
		c.later = c.later[1:]
	}
	return nil
}

// addWorker counts an open worker, which must be closed before the context.
func (c *Context) addWorker() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ucs.ErrClosed
	}
	c.workers++
	return nil
}

func (c *Context) removeWorker() {
	c.mu.Lock()
	c.workers--
	c.mu.Unlock()
}
