package conn

import (
	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/wireup"
)

// Peer is the state of another worker; connections to the same worker share it.
type Peer struct {
	Addr *wireup.Address
	Best [wireup.Aux + 1]Choice // by role
	Aux  []Path                 // paths for handshakes, best first

	packed string
	refs   int
	pair   *keypair.Pair  // of this side
	secret keypair.Secret // shared with the peer; nil before its first use, see proof.go
}

// Is reports whether packed is the address of the peer. The address of an untrusted worker may have the same UUID, but
// it has another key.
func (p *Peer) Is(packed []byte) bool { return p.packed == string(packed) }

// Path is a pair of resources, by index.
type Path struct{ Local, Remote int }

// Choice is the best path for a role.
type Choice struct {
	OK bool // false: there is no path
	Path
}

// Reachable reports whether any operation has a lane.
func (p *Peer) Reachable() bool {
	for role := range wireup.Aux {
		if p.Best[role].OK {
			return true
		}
	}
	return false
}

// Peers are the peers of a worker.
type Peers struct {
	pair  keypair.Pair
	local *wireup.Address
	reach func(*wireup.Address) selection.Reacher
	known map[string]*Peer
}

// Init must be called once, before any other method. It makes the key pair of this side and
// sets the public key in local, which is the address of this side. reach reports which ifaces
// can reach each other. Errors: those of package crypto.
func (t *Peers) Init(local *wireup.Address, reach func(*wireup.Address) selection.Reacher) (err error) {
	t.local, t.reach, t.known = local, reach, map[string]*Peer{}
	if t.pair, err = keypair.New(); err == nil {
		local.Key = wireup.PublicKey(t.pair.Public)
	}
	return err
}

// SetLocal replaces the address of this side for peers that Find returns later. local must have the same
// key.
func (t *Peers) SetLocal(local *wireup.Address) { t.local = local }

// Len is the number of known peers.
func (t *Peers) Len() int { return len(t.known) }

// Find returns the peer with an address, which it validates; ErrInvalidAddr. A caller that does not Hold
// the peer must pass it to Unused.
func (t *Peers) Find(packed []byte) (*Peer, error) { return t.FindAs(packed, nil) }

// FindAs is Find with a function that edits the address of a new peer to the form that this side
// uses. nil edits nothing.
func (t *Peers) FindAs(packed []byte, edit func(*wireup.Address)) (*Peer, error) {
	if p := t.known[string(packed)]; p != nil {
		return p, nil
	}
	addr, err := wireup.UnpackAddress(packed)
	if err != nil {
		return nil, err
	}
	if edit != nil {
		edit(addr)
	}
	p := &Peer{packed: string(packed), Addr: addr, pair: &t.pair}
	reach := t.reach(addr)
	for role := range p.Best {
		cands := selection.Rank(wireup.Role(role), t.local, addr, reach)
		if len(cands) > 0 && cands[0].Why == "" {
			p.Best[role] = Choice{true, Path{cands[0].Local, cands[0].Remote}}
		}
	}
	for _, cand := range selection.Rank(wireup.Aux, t.local, addr, reach) {
		if cand.Why == "" {
			p.Aux = append(p.Aux, Path{cand.Local, cand.Remote})
		}
	}
	t.known[p.packed] = p
	return p, nil
}

// Hold counts a connection to a peer.
func (t *Peers) Hold(p *Peer) { p.refs++ }

// Held reports whether there is a connection to the peer.
func (p *Peer) Held() bool { return p.refs > 0 }

// Drop uncounts a connection. It removes a peer without a connection.
func (t *Peers) Drop(p *Peer) {
	p.refs--
	t.Unused(p)
}

// Unused removes a peer without a connection.
func (t *Peers) Unused(p *Peer) {
	if p.refs == 0 {
		delete(t.known, p.packed)
	}
}
