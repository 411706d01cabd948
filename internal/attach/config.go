package attach

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

// Config describes a port. Service, GID, Layout, Table, Arena, WakeFD and LinkLen have no
// default. What is passed in stays the caller's, and must stay open until Close.
type Config struct {
	// Service names the kind of port: ports of different services do not see each other. It is
	// part of the socket's name and stands in errors. Required; at most 16 bytes.
	Service string

	// GID is this port's address. Nobody else on the host may listen on it.
	GID [16]byte

	// Layout is the version of what is inside the segments. Both sides of a link
	// must have the same.
	Layout uint32

	// Table is given to dialers for reading; made with memfd.PeersRead.
	Table *memfd.Segment

	// Arena is given to dialers for writing; made with memfd.PeersWrite. A port
	// that dials gives it to the acceptor too, which maps the first ControlLen bytes.
	Arena *memfd.Segment

	// ControlLen is how much of the dialer's arena an acceptor maps at least, in bytes.
	// 0 means one page.
	ControlLen int

	// DialLen is how much of the acceptor's arena a dialer maps at least, in bytes, before
	// it asks for more: see memfd.Segment.Grow. 0 means all.
	DialLen int

	// Mapper maps tables and arenas of peers. Ports that share one map those of a peer
	// once. nil means one of the port's own.
	Mapper *memfd.Mapper

	// LinkLen is the length of the segment that a dialer creates for each link, in
	// bytes, rounded up to a page. Both sides of a link must have the same.
	LinkLen int

	// WakeFD is Waker.PeerFD: the write end of a pipe, which peers open anew.
	WakeFD int

	// AllowUIDs lists users, beside this process's effective user, that may
	// connect and may be connected to. It means trust: see the package comment.
	AllowUIDs []uint32

	// SocketDir, if not empty, is where the port's socket is a file, instead of an
	// abstract name: for processes in different network namespaces that have the
	// directory mounted, possibly at different paths. The file's mode is 0600, or
	// 0666 with AllowUIDs; Close removes it, and Listen removes what killed processes
	// of this user left there. Both sides need it.
	SocketDir string

	// Local makes links to other ports of this process without a socket, if they have it too: the dialer's
	// goroutine calls OnLink. Such a link uses no descriptors but the pipes, and the segments of many links share a mapping.
	Local bool

	// MaxLinks bounds the inbound links that are not closed yet. 0 means 1024.
	MaxLinks int

	// MaxHandshakes bounds the inbound handshakes under way; more connections
	// wait in the listen backlog. 0 means 64.
	MaxHandshakes int

	// HandshakeTimeout bounds a handshake, on either side, as package timelimit counts. 0 means 5 s.
	HandshakeTimeout time.Duration

	// MaxTableLen and MaxArenaLen bound what a peer may offer, in bytes. 0 means
	// 1 GiB and 1 TiB; it is address space, not memory.
	MaxTableLen int
	MaxArenaLen int

	// OnLink is told of each inbound link before the dialer learns that it was
	// accepted, so nothing the dialer does can precede it. An error refuses the
	// link; the Inbound is closed by the port then, as it is when Close comes
	// before WELCOME. It runs on a goroutine of the
	// port, several may run at once, and it must not call Port.Close. nil refuses all.
	OnLink func(*Inbound) error
}

const (
	defaultMaxLinks         = 1024
	defaultMaxHandshakes    = 64              // as many as take a thread each without harm
	defaultHandshakeTimeout = 5 * time.Second // a live process on an overloaded machine took more than 1 s
	defaultMaxTableLen      = 1 << 30
	defaultMaxArenaLen      = 1 << 40 // 1/128 of the address space of amd64

	maxService = 16
)

func (c Config) withDefaults() (Config, error) {
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%w: %w", ucs.ErrInvalidParam, err)
	}
	page := os.Getpagesize()
	c.LinkLen = (c.LinkLen + page - 1) / page * page
	c.ControlLen = orDefault(c.ControlLen, page)
	c.MaxLinks = orDefault(c.MaxLinks, defaultMaxLinks)
	c.MaxHandshakes = orDefault(c.MaxHandshakes, defaultMaxHandshakes)
	c.MaxTableLen = orDefault(c.MaxTableLen, defaultMaxTableLen)
	c.MaxArenaLen = orDefault(c.MaxArenaLen, defaultMaxArenaLen)
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = defaultHandshakeTimeout
	}
	if c.Mapper == nil {
		c.Mapper = new(memfd.Mapper)
	}
	c.AllowUIDs = append([]uint32{uint32(os.Geteuid())}, c.AllowUIDs...)
	return c, nil
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

func (c Config) check() error {
	if c.Service == "" || len(c.Service) > maxService {
		return fmt.Errorf("service name %q", c.Service)
	}
	if c.GID == ([16]byte{}) {
		return fmt.Errorf("zero GID")
	}
	if c.Table == nil || c.Arena == nil || min(c.Table.FD(), c.Arena.FD()) < 0 {
		return fmt.Errorf("table or arena without a descriptor")
	}
	if c.LinkLen <= 0 {
		return fmt.Errorf("link length %d", c.LinkLen)
	}
	if min(c.ControlLen, c.DialLen, c.MaxLinks, c.MaxHandshakes, c.MaxTableLen, c.MaxArenaLen) < 0 || c.HandshakeTimeout < 0 {
		return fmt.Errorf("negative limit")
	}
	if c.ControlLen > len(c.Arena.Bytes()) {
		return fmt.Errorf("control of %d bytes in an arena of %d", c.ControlLen, len(c.Arena.Bytes()))
	}
	if err := checkSocketDir(c.SocketDir, c.Service); err != nil {
		return err
	}
	return checkPipe(c.WakeFD)
}

// allows reports whether uid is this user or one of AllowUIDs.
func (c *Config) allows(uid uint32) bool { return slices.Contains(c.AllowUIDs, uid) }
