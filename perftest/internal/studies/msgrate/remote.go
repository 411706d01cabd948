package msgrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// A target in another process serves requests one by one, each a line of JSON, until the connection
// ends.

// targetRequest is Close if Close is set, Accept if there are peers, and Memory otherwise.
type targetRequest struct {
	Close bool
	Peers []rclink.Addr
	Len   int
}

type targetReply struct {
	Landing Landing
	Memory  []byte
	Error   string
}

// maxPeers and maxLanding are limits of a request.
const (
	maxPeers   = 4096
	maxLanding = 1 << 28
)

// ServeTarget serves a target on the shm fabric until conn ends, and closes conn.
func ServeTarget(conn net.Conn) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	dev, err := newDevice(softhca.FabricShm, mlx5.Config{})
	if err != nil {
		return err
	}
	t, err := NewTarget(dev)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var req targetRequest
		if err := in.Decode(&req); err != nil {
			return ignoreGone(err)
		}
		if err := out.Encode(serve(t, req)); err != nil || req.Close {
			return ignoreGone(err)
		}
	}
}

// ignoreGone returns err, or nil if the requesting side is gone: then no side reads the error.
func ignoreGone(err error) error {
	if errors.Is(children.AsErrGone(err), children.ErrGone) {
		return nil
	}
	return err
}

func serve(t Target, req targetRequest) (r targetReply) {
	var err error
	switch {
	case req.Close:
		err = t.Close()
	case len(req.Peers) > maxPeers || req.Len > maxLanding:
		err = fmt.Errorf("%d peers and %d bytes are too many", len(req.Peers), req.Len)
	case len(req.Peers) > 0:
		r.Landing, err = t.Accept(req.Peers, req.Len)
	default:
		r.Memory, err = t.Memory()
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// remote is a Target in the process at the other end of a connection.
type remote struct {
	conn io.Closer
	in   *json.Decoder
	out  *json.Encoder
}

// NewRemote returns the target that ServeTarget serves at the other end of conn. Its Close calls
// closer.
func NewRemote(conn net.Conn, with io.Closer) Target {
	return &remote{conn: with, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
}

func (r *remote) call(req targetRequest) (reply targetReply, err error) {
	if err := r.out.Encode(req); err != nil {
		return reply, children.AsErrGone(err)
	}
	if err := r.in.Decode(&reply); err != nil {
		return reply, children.AsErrGone(err)
	}
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

func (r *remote) Accept(peers []rclink.Addr, n int) (Landing, error) {
	reply, err := r.call(targetRequest{Peers: peers, Len: n})
	return reply.Landing, err
}

func (r *remote) Memory() ([]byte, error) {
	reply, err := r.call(targetRequest{})
	return reply.Memory, err
}

// Close makes the process close the target, and then waits until it exits.
func (r *remote) Close() error {
	_, err := r.call(targetRequest{Close: true})
	return errors.Join(err, r.conn.Close())
}
