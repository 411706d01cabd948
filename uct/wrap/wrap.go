package wrap

import "github.com/gucx/gucx/uct"

// Hooks is a layer: functions that change the objects of a transport when they are
// opened. Any may be nil. The goroutine that opens the object calls them, before it is used.
type Hooks struct {
	MD    func(*MD)
	Iface func(*Iface)
	EP    func(*EP)
}

// MD is a memory domain with a layer around it.
type MD struct {
	uct.MD
	Has uct.MDExt // what Ext returns
}

// Ext implements uct.MD.
func (m *MD) Ext() *uct.MDExt { return &m.Has }

// Iface is an iface with a layer around it. The features of the iface below do not know of work
// that the layer holds back: a layer that does so has to call HoldBack, and its Has.Wake has to
// return ErrBusy while there is such work. A layer has to clear Has.Guarded if its Progress runs
// callbacks itself, or does not call Progress of the iface each time.
type Iface struct {
	uct.Iface
	Has uct.IfaceExt // what Ext returns
	// OnError is the caller's, nil if it has none; it gets EPs with this layer.
	OnError func(uct.EP, error)

	eps map[uct.EP]*EP // open ones, by the EP below
}

// HoldBack clears the features that report that the iface has no work. Progress is then called each time.
func (i *Iface) HoldBack() { i.Has.Watch, i.Has.Armed = nil, nil }

// Ext implements uct.Iface.
func (i *Iface) Ext() *uct.IfaceExt { return &i.Has }

// EP is an endpoint with a layer around it.
type EP struct {
	uct.EP
	Has uct.Ops // what Ops returns
	On  *Iface
}

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops { return &e.Has }

// Component returns c with layers, the first next to c.
func Component(c uct.Component, layers ...Hooks) uct.Component { return &component{c, layers} }

type component struct {
	uct.Component
	layers []Hooks
}

// OpenMD opens a wrapped domain.
func (c *component) OpenMD(name string) (uct.MD, error) {
	md, err := c.Component.OpenMD(name)
	if err != nil {
		return nil, err
	}
	return Domain(md, c.layers...), nil
}

// Domain returns md with layers, the first next to md.
func Domain(md uct.MD, layers ...Hooks) uct.MD {
	for i := range layers {
		h := &layers[i]
		m := &MD{MD: &domain{md, h}, Has: *md.Ext()}
		if h.MD != nil {
			h.MD(m)
		}
		md = m
	}
	return md
}

// domain wraps the ifaces that it opens.
type domain struct {
	uct.MD
	hooks *Hooks
}

// OpenIface opens a wrapped iface.
func (m *domain) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i := &Iface{OnError: p.OnError, eps: map[uct.EP]*EP{}}
	p.OnError = i.failed
	below, err := m.MD.OpenIface(p)
	if err != nil {
		return nil, err
	}
	i.Iface, i.Has = &iface{below, m.hooks, i}, *below.Ext()
	if m.hooks.Iface != nil {
		m.hooks.Iface(i)
	}
	return i, nil
}

// failed reports a failed EP of the transport below.
func (i *Iface) failed(below uct.EP, err error) {
	if e := i.eps[below]; e != nil && i.OnError != nil {
		i.OnError(e, err)
	}
}

// iface wraps the EPs that it makes.
type iface struct {
	uct.Iface
	hooks *Hooks
	outer *Iface
}

// NewEP makes a wrapped EP.
func (i *iface) NewEP(p uct.EPParams) (uct.EP, error) {
	below, err := i.Iface.NewEP(p)
	if err != nil {
		return nil, err
	}
	e := &EP{EP: &endpoint{below, i.outer}, Has: *below.Ops(), On: i.outer}
	i.outer.eps[below] = e
	if i.hooks.EP != nil {
		i.hooks.EP(e)
	}
	return e, nil
}

// endpoint forgets itself when it is closed.
type endpoint struct {
	uct.EP
	on *Iface
}

// Close implements uct.EP.
func (e *endpoint) Close() error {
	err := e.EP.Close()
	delete(e.on.eps, e.EP)
	return err
}
