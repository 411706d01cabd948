package lj

import (
	"errors"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// domain is a rank's part of the box, and the exchange of atoms with other ranks.
type domain struct {
	comm  *kernel.Comm
	parts []int
	at    []int
	low   position // first place on each edge
	size  position
	reach position // radius of lists of neighbors
	swaps []*swap
}

// swap is an exchange with one neighbor, or with two: positions are sent to one and received from the other. The swaps
// of an edge follow those of the edges before it, and forward their atoms.
type swap struct {
	edge       int
	to, from   int // ranks
	tag        int
	down, up   bool // range of the atoms to send: near the low face, near the high face
	atoms      []int32
	first, n   int // received ghosts
	out, in    []uint64
	lengths    [1]uint64
	lengthsOut [1]uint64
}

func newDomain(c *Config, b *box, comm *kernel.Comm) (*domain, error) {
	parts, err := c.Parts(comm.Size())
	if err != nil {
		return nil, err
	}
	d := &domain{comm: comm, parts: parts, at: kernel.Place(comm.Rank(), parts)}
	for k := range axes {
		d.low[k] = firstOf(d.at[k], parts[k])
		next := uint64(0) // the end of the box
		if d.at[k]+1 < parts[k] {
			next = firstOf(d.at[k]+1, parts[k])
		}
		d.size[k] = next - d.low[k] // 0 is the whole edge, which has no swaps
		d.reach[k] = b.units(c.reach(), k)
		below, above := kernel.Neighbor(d.at, parts, k, -1), kernel.Neighbor(d.at, parts, k, 1)
		switch {
		case parts[k] == 1:
		case parts[k] == 2: // the same neighbor on both sides
			d.swaps = append(d.swaps, &swap{edge: k, to: below, from: below, tag: 2 * k, down: true, up: true})
		default:
			d.swaps = append(d.swaps, &swap{edge: k, to: below, from: above, tag: 2 * k, down: true}, &swap{edge: k, to: above, from: below, tag: 2*k + 1, up: true})
		}
	}
	return d, nil
}

// owns reports whether a place is in the domain.
func (d *domain) owns(p *position) bool {
	for k, n := range d.parts {
		if part(p[k], n) != d.at[k] {
			return false
		}
	}
	return true
}

// cells returns the first and the last cells of the crystal that may contain atoms of the domain.
func (d *domain) cells(c *Config) (first, last [axes]int) {
	for k, n := range c.Cells {
		first[k] = part(d.low[k], n)
		last[k] = n - 1
		if d.size[k] != 0 {
			last[k] = part(d.low[k]+d.size[k]-1, n)
		}
	}
	return first, last
}

// includes reports whether an atom is sent in a swap.
func (d *domain) includes(s *swap, p *position) bool {
	k := s.edge
	offset := p[k] - d.low[k]
	return s.down && offset <= d.reach[k] || s.up && d.size[k]-offset <= d.reach[k]
}

// groups calls f with the swaps of each edge.
func (d *domain) groups(f func(swaps []*swap) error) error {
	for i := 0; i < len(d.swaps); {
		j := i
		for j < len(d.swaps) && d.swaps[j].edge == d.swaps[i].edge {
			j++
		}
		if err := f(d.swaps[i:j]); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// exchange sends out of each swap to its neighbor, and receives the number of integers that the neighbor announces.
// Messages of all swaps are in flight at the same time.
func (d *domain) exchange(swaps []*swap) error {
	for _, s := range swaps {
		s.lengthsOut[0] = uint64(len(s.out))
		if err := d.comm.Irecv(s.from, s.tag, ucpgroup.Bytes(s.lengths[:])); err != nil {
			return err
		}
		if err := d.comm.Isend(s.to, s.tag, ucpgroup.Bytes(s.lengthsOut[:])); err != nil {
			return err
		}
	}
	if err := d.comm.WaitAll(); err != nil {
		return err
	}
	for _, s := range swaps {
		s.in = resized(s.in, int(s.lengths[0]))
	}
	return d.transfer(swaps)
}

// transfer sends out of each swap and receives into in, whose length is known.
func (d *domain) transfer(swaps []*swap) error {
	for _, s := range swaps {
		if err := d.comm.Irecv(s.from, s.tag, ucpgroup.Bytes(s.in)); err != nil {
			return err
		}
	}
	for _, s := range swaps {
		if err := d.comm.Isend(s.to, s.tag, ucpgroup.Bytes(s.out)); err != nil {
			return err
		}
	}
	return d.comm.WaitAll()
}

// resized returns a slice of n elements, in the memory of b if that is large enough.
func resized(b []uint64, n int) []uint64 {
	if cap(b) < n {
		return make([]uint64, n, n+n/4)
	}
	return b[:n]
}

// borders determines the atoms to send in each swap, and receives those of the neighbors: they follow the positions of
// the domain's atoms.
func (d *domain) borders(positions []position) ([]position, error) {
	err := d.groups(func(swaps []*swap) error {
		known := len(positions)
		for _, s := range swaps {
			s.atoms, s.out = s.atoms[:0], s.out[:0]
			for i := range positions[:known] {
				if d.includes(s, &positions[i]) {
					s.atoms = append(s.atoms, int32(i))
					s.out = append(s.out, positions[i][:]...)
				}
			}
		}
		if err := d.exchange(swaps); err != nil {
			return err
		}
		for _, s := range swaps {
			s.first, s.n = len(positions), len(s.in)/axes
			for i := range s.n {
				positions = append(positions, position(s.in[axes*i:]))
			}
		}
		return nil
	})
	return positions, err
}

// forward receives the new positions of the neighbors' atoms.
func (d *domain) forward(positions []position) error {
	return d.groups(func(swaps []*swap) error {
		for _, s := range swaps {
			s.out = s.out[:0]
			for _, i := range s.atoms {
				s.out = append(s.out, positions[i][:]...)
			}
			s.in = resized(s.in, axes*s.n)
		}
		if err := d.transfer(swaps); err != nil {
			return err
		}
		for _, s := range swaps {
			for i := range s.n {
				positions[s.first+i] = position(s.in[axes*i:])
			}
		}
		return nil
	})
}

// errLost is the error if an atom has moved by more than a domain since the last migration.
var errLost = errors.New("lj: an atom has moved too far: choose a shorter time step")

// migrate sends atoms to the ranks that own their places.
func (d *domain) migrate(atoms []atom) ([]atom, error) {
	err := d.groups(func(swaps []*swap) error {
		k := swaps[0].edge
		for _, s := range swaps {
			s.out = s.out[:0]
		}
		stay := atoms[:0]
		for i := range atoms {
			a := &atoms[i]
			owner := part(a.at[k], d.parts[k])
			if owner == d.at[k] {
				stay = append(stay, *a)
				continue
			}
			s := d.toward(swaps, owner)
			if s == nil {
				return errLost
			}
			s.out = a.pack(s.out)
		}
		atoms = stay
		if err := d.exchange(swaps); err != nil {
			return err
		}
		for _, s := range swaps {
			for in := s.in; len(in) > 0; in = in[words:] {
				atoms = append(atoms, unpackAtom(in))
			}
		}
		return nil
	})
	return atoms, err
}

// toward returns the swap to the part of an edge; nil if that is no neighbor.
func (d *domain) toward(swaps []*swap, owner int) *swap {
	n := d.parts[swaps[0].edge]
	for _, s := range swaps {
		by := 1
		if s.down {
			by = -1
		}
		if (d.at[s.edge]+by+n)%n == owner {
			return s
		}
	}
	return nil
}
