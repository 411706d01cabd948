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
// default. The caller owns the segments and descriptors, and must not close them before Close of the port has returned.
type Config struct {
	// Service is the type of the port: ports connect only to ports of the same service. It is
	// part of the socket's name and of errors. Required; at most 16 bytes.
	Service string

	// GID is the address of this port. It must be unique on the host.
	GID [16]byte

	// Layout is the version of the contents of the segments. It must be the same on both sides of a link.
	Layout uint32

	// Table is mapped by dialers for reading. It was created with memfd.PeersRead.
	Table *memfd.Segment

	// Arena is mapped by dialers for writing. It was created with memfd.PeersWrite. If this port
	// dials, the acceptor also maps its first ControlLen bytes.
	Arena *memfd.Segment

	// ControlLen is the minimum length that an acceptor maps of the dialer's arena, in bytes.
	// 0 means one page.
	ControlLen int

	// DialLen is the minimum length that a dialer maps of the acceptor's arena, in bytes. The dialer
	// maps more by memfd.Segment.Grow. 0 means all.
	DialLen int

	// Mapper maps tables and arenas of peers. Ports with the same Mapper share the mappings of a peer.
	// nil means a Mapper for this port alone.
	Mapper *memfd.Mapper

	// LinkLen is the length of the segment that a dialer creates for each link, in
	// bytes, rounded up to a page. It must be the same on both sides of a link.
	LinkLen int

	// WakeFD is Waker.PeerFD: the write end of a pipe, which peers open anew.
	WakeFD int

	// AllowUIDs lists the users, besides the effective user of this process, whose processes may
	// connect and may be connected to. The package comment says what they can do.
	AllowUIDs []uint32

	// SocketDir, if not empty, is the directory of the port's socket, which is then a file instead of an
	// abstract name. Processes in different network namespaces can mount the
	// directory, also at different paths. The mode of the file is 0600, or
	// 0666 with AllowUIDs. Close removes the file, and Listen removes files that killed processes
	// of this user have left there. Both sides must set it.
	SocketDir string

	// Local makes links to other ports of this process without a socket, if they have it too: the dialer's
	// goroutine calls OnLink. Such a link uses no descriptors but the pipes, and the segments of many links share a mapping.
	Local bool

	// MaxLinks limits the inbound links that are not closed. 0 means 1024.
	MaxLinks int

	// MaxHandshakes limits the inbound handshakes in progress; further connections
	// wait in the listen backlog. 0 means 64.
	MaxHandshakes int

	// HandshakeTimeout limits a handshake, on either side, by package timelimit. 0 means 5 s.
	HandshakeTimeout time.Duration

	// MaxTableLen and MaxArenaLen limit the segments of a peer, in bytes. 0 means
	// 1 GiB and 1 TiB of address space.
	MaxTableLen int
	MaxArenaLen int

	// OnLink is called for each inbound link before WELCOME is sent, so the dialer can use the link only
	// afterwards. If OnLink returns an error, the link is rejected and the port closes the Inbound. The port also
	// closes it if Close is called before WELCOME is sent. OnLink runs on goroutines of the port, several at the same
	// time, and must not call Port.Close. nil rejects all links.
	OnLink func(*Inbound) error
}

const (
	defaultMaxLinks         = 1024
	defaultMaxHandshakes    = 64              // each may occupy a thread
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
