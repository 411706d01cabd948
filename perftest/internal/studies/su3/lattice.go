package su3

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// dims is the number of dimensions of space and time.
const dims = 4

// reals is the number of real numbers of a site's vector in a message.
const reals = 2 * colors

// lattice is a rank's part of the sites, in a box; the first coordinate changes fastest.
type lattice struct {
	comm   *kernel.Comm
	global [dims]int // sites of all ranks in each direction
	size   [dims]int // of this rank
	origin [dims]int
	sites  int

	links [][dims]matrix
	signs [][dims]float64 // η/2
	// ahead and behind are the indexes of the site's neighbors, or ^i for entry i of the halo in that direction.
	ahead, behind [][dims]int32
	inner, outer  []int32 // sites without and with neighbors on other ranks
	halos         [dims]*halo
}

// halo contains the messages of a direction in which the lattice is divided.
type halo struct {
	up, down int // ranks
	// low and high are the sites of this rank that have neighbors on other ranks, in the same order on both sides.
	low, high []int32
	// Buffers for received vectors of the rank above, for received products of the rank below with its links, and for
	// the data to send.
	ahead, behind         []vector
	sendDown, sendUp      []float64
	fromAbove, fromBehind []float64
}

// Parts returns the division of the lattice for a number of ranks.
func Parts(size [dims]int, ranks int) (parts []int, err error) {
	parts, ok := kernel.Split(size[:], ranks, func(edge, parts int) bool { return edge%parts == 0 })
	if !ok {
		return nil, fmt.Errorf("%w: %d ranks cannot share a lattice of %v sites equally", kernel.ErrStudy, ranks, size)
	}
	return parts, nil
}

func newLattice(c *kernel.Comm, cfg *Config) (*lattice, error) {
	parts, err := Parts(cfg.Size, c.Size())
	if err != nil {
		return nil, err
	}
	at := kernel.Place(c.Rank(), parts)
	l := &lattice{comm: c, global: cfg.Size, sites: 1}
	for d := range dims {
		l.size[d] = cfg.Size[d] / parts[d]
		l.origin[d] = at[d] * l.size[d]
		l.sites *= l.size[d]
		if parts[d] > 1 {
			l.halos[d] = &halo{up: kernel.Neighbor(at, parts, d, 1), down: kernel.Neighbor(at, parts, d, -1)}
		}
	}
	l.connect()
	l.fill(cfg.Seed, cfg.Roughness)
	return l, nil
}

// place returns the coordinates of a site.
func (l *lattice) place(site int) (x [dims]int) {
	for d, n := range l.size {
		x[d] = site % n
		site /= n
	}
	return x
}

// site is the inverse of place.
func (l *lattice) site(x [dims]int) (site int) {
	for d := dims - 1; d >= 0; d-- {
		site = site*l.size[d] + x[d]
	}
	return site
}

// number returns the number of a site among those of all ranks.
func (l *lattice) number(x [dims]int) (n int) {
	for d := dims - 1; d >= 0; d-- {
		n = n*l.global[d] + l.origin[d] + x[d]
	}
	return n
}

// connect determines the neighbors.
func (l *lattice) connect() {
	l.ahead, l.behind = make([][dims]int32, l.sites), make([][dims]int32, l.sites)
	for s := range l.sites {
		x := l.place(s)
		outer := false
		for d, n := range l.size {
			y, z := x, x
			y[d], z[d] = (x[d]+1)%n, (x[d]-1+n)%n
			l.ahead[s][d], l.behind[s][d] = int32(l.site(y)), int32(l.site(z))
			h := l.halos[d]
			if h == nil {
				continue
			}
			if x[d] == n-1 {
				l.ahead[s][d] = ^int32(len(h.high))
				h.high = append(h.high, int32(s))
				outer = true
			}
			if x[d] == 0 {
				l.behind[s][d] = ^int32(len(h.low))
				h.low = append(h.low, int32(s))
				outer = true
			}
		}
		if outer {
			l.outer = append(l.outer, int32(s))
		} else {
			l.inner = append(l.inner, int32(s))
		}
	}
	for _, h := range l.halos {
		if h != nil {
			h.allocate()
		}
	}
}

func (h *halo) allocate() {
	n := len(h.low)
	h.ahead, h.behind = make([]vector, n), make([]vector, n)
	h.sendDown, h.sendUp = make([]float64, reals*n), make([]float64, reals*n)
	h.fromAbove, h.fromBehind = make([]float64, reals*n), make([]float64, reals*n)
}

// fill creates the links and the signs.
func (l *lattice) fill(seed uint64, roughness float64) {
	l.links, l.signs = make([][dims]matrix, l.sites), make([][dims]float64, l.sites)
	for s := range l.sites {
		x := l.place(s)
		sign := 0.5
		for d := range dims {
			l.links[s][d] = randomLink(seed, roughness, l.number(x), d)
			l.signs[s][d] = sign
			if (l.origin[d]+x[d])%2 == 1 {
				sign = -sign
			}
		}
	}
}

// apply sets out to D in. Inner sites are computed while messages are in flight.
func (l *lattice) apply(out, in []vector) error {
	if err := l.beginHalos(in); err != nil {
		return err
	}
	for _, s := range l.inner {
		l.applySite(&out[s], in, s)
	}
	if err := l.comm.WaitAll(); err != nil {
		return err
	}
	for _, h := range l.halos {
		if h != nil {
			unpack(h.ahead, h.fromAbove)
			unpack(h.behind, h.fromBehind)
		}
	}
	for _, s := range l.outer {
		l.applySite(&out[s], in, s)
	}
	return nil
}

// applySite adds the terms of a site.
func (l *lattice) applySite(out *vector, in []vector, s int32) {
	var sum, ahead, product vector
	for d := range dims {
		next := l.ahead[s][d]
		v := &vector{}
		if next >= 0 {
			v = &in[next]
		} else {
			v = &l.halos[d].ahead[^next]
		}
		mul(&ahead, &l.links[s][d], v)
		behind := &product
		if last := l.behind[s][d]; last >= 0 {
			mulAdjoint(&product, &l.links[last][d], &in[last])
		} else {
			behind = &l.halos[d].behind[^last]
		}
		sign := l.signs[s][d]
		addScaled(&sum, sign, &ahead)
		addScaled(&sum, -sign, behind)
	}
	*out = sum
}

// Tags of messages: the direction, and whether they are sent up.
func tagOf(direction int, up bool) int {
	if up {
		return 2*direction + 1
	}
	return 2 * direction
}

// beginHalos posts receives and sends the data that neighbors need: to the rank below the vectors of the lowest sites,
// to the rank above the products of the highest ones with their links.
func (l *lattice) beginHalos(in []vector) error {
	for d, h := range l.halos {
		if h == nil {
			continue
		}
		if err := l.comm.Irecv(h.up, tagOf(d, false), ucpgroup.Bytes(h.fromAbove)); err != nil {
			return err
		}
		if err := l.comm.Irecv(h.down, tagOf(d, true), ucpgroup.Bytes(h.fromBehind)); err != nil {
			return err
		}
	}
	for d, h := range l.halos {
		if h == nil {
			continue
		}
		for i, s := range h.low {
			pack(h.sendDown[reals*i:], &in[s])
		}
		if err := l.comm.Isend(h.down, tagOf(d, false), ucpgroup.Bytes(h.sendDown)); err != nil {
			return err
		}
		for i, s := range h.high {
			var product vector
			mulAdjoint(&product, &l.links[s][d], &in[s])
			pack(h.sendUp[reals*i:], &product)
		}
		if err := l.comm.Isend(h.up, tagOf(d, true), ucpgroup.Bytes(h.sendUp)); err != nil {
			return err
		}
	}
	return nil
}

func pack(out []float64, v *vector) {
	for i, z := range v {
		out[2*i], out[2*i+1] = real(z), imag(z)
	}
}

func unpack(out []vector, from []float64) {
	for i := range out {
		for k := range colors {
			out[i][k] = complex(from[reals*i+2*k], from[reals*i+2*k+1])
		}
	}
}
