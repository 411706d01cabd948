package timing

// NIC is an adapter: PCIe in both directions, translation, message pipeline, wire.
type NIC struct {
	m        *Model
	toHost   link // posted writes of the NIC, and its read requests
	fromHost link // posted writes of cores, and the data of reads
	tags     int
	waiting  []dmaRead // waiting for a tag
	rails    []server
	lines    map[uint64]int // cache line: index in the order of first use
	pipeline server
	wireOut  link
	wireIn   link
}

type dmaRead struct {
	len  int64
	done func()
}

// NewNIC adds an adapter in a machine of its own. The cores of that machine equal those of the
// first.
func (m *Model) NewNIC() *NIC {
	p := &m.params
	pcie := link{bandwidth: p.PCIeBandwidth, header: p.TLPHeader, payload: p.TLPPayload}
	wire := link{bandwidth: p.LinkBandwidth, header: p.PacketHeader, payload: p.PacketPayload}
	n := &NIC{m: m, toHost: pcie, fromHost: pcie, tags: p.ReadTags, rails: make([]server, p.Rails),
		lines: map[uint64]int{}, wireOut: wire, wireIn: wire}
	m.nics = append(m.nics, n)
	return n
}

// read fetches n bytes of host memory and then calls done.
func (n *NIC) read(length int64, done func()) {
	if n.tags == 0 {
		n.waiting = append(n.waiting, dmaRead{length, done})
		return
	}
	n.tags--
	m := n.m
	m.stats.Reads++
	asked := n.toHost.send(m.now, 0)
	m.at(asked+m.params.PCIeRead, func() {
		m.at(n.fromHost.send(m.now, length), func() { n.arrived(done) })
	})
}

// arrived ends a read and starts a waiting one.
func (n *NIC) arrived(done func()) {
	n.tags++
	if len(n.waiting) > 0 {
		next := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.read(next.len, next.done)
	}
	done()
}

// cacheLine is log2 of the length of a cache line in bytes.
const cacheLine = 6

// rail returns the translation engine of an address. Hardware hashes the cache line, which
// distributes lines evenly; the model uses the order of first use, which unlike addresses is the
// same in each run.
func (n *NIC) rail(addr uint64) *server {
	line := addr >> cacheLine
	i, known := n.lines[line]
	if !known {
		i = len(n.lines)
		n.lines[line] = i
	}
	return &n.rails[i%len(n.rails)]
}

// gather translates the address of a part of a payload and reads it.
func (n *NIC) gather(s Span, done func()) {
	m := n.m
	r := n.rail(s.Addr)
	m.stats.RailWait += max(0, r.free-m.now)
	m.at(r.book(m.now, m.params.RailLookup), func() { n.read(int64(s.Len), done) })
}

// transmit sends a message and then calls acked.
func (n *NIC) transmit(w *WQE, acked func()) {
	m := n.m
	out := int64(w.Len)
	if w.Kind != Write {
		out = 0 // a request; its data is returned
	}
	sent := n.wireOut.send(n.pipeline.book(m.now, m.params.MessageGap), out)
	ack := sent + m.params.AckRoundTrip
	if w.Kind == Write {
		m.at(ack, acked)
		return
	}
	m.at(ack+m.params.PCIeRead, func() { // the other side reads its memory
		m.at(n.wireIn.send(m.now, int64(w.Len)), func() {
			m.at(n.toHost.send(m.now, int64(w.Len)), acked)
		})
	})
}
