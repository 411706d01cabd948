package ucpnet

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPingPong measures a round trip between two goroutines, also over loopback TCP.
func BenchmarkPingPong(b *testing.B) {
	for _, n := range []int{8, 4096} {
		for _, tls := range []string{"sm", "tcp"} {
			b.Run(fmt.Sprintf("%s/%dB", tls, n), func(b *testing.B) {
				p := newPair(b, tls)
				from, to := p.connect()
				require.NoError(b, p.l.Close())
				defer closeBoth(from, to)
				pingPong(b, from, to, n)
			})
		}
		b.Run(fmt.Sprintf("net/%dB", n), func(b *testing.B) {
			from, to := loopback(b)
			pingPong(b, from, to, n)
		})
	}
}

// BenchmarkCopy measures one goroutine that writes and one that reads, 64 KiB at a time.
func BenchmarkCopy(b *testing.B) {
	for _, tls := range []string{"sm", "tcp"} {
		b.Run(tls, func(b *testing.B) {
			p := newPair(b, tls)
			from, to := p.connect()
			require.NoError(b, p.l.Close())
			defer closeBoth(from, to)
			stream(b, from, to)
		})
	}
	b.Run("net", func(b *testing.B) {
		from, to := loopback(b)
		stream(b, from, to)
	})
}

func pingPong(b *testing.B, from, to net.Conn, n int) {
	echoed := make(chan error, 1)
	go func() {
		buf := make([]byte, n)
		for {
			if _, err := io.ReadFull(to, buf); err != nil {
				echoed <- nil // the other side has closed
				return
			}
			if _, err := to.Write(buf); err != nil {
				echoed <- err
				return
			}
		}
	}()
	buf := make([]byte, n)
	b.ReportAllocs()
	for b.Loop() {
		_, err := from.Write(buf)
		require.NoError(b, err)
		_, err = io.ReadFull(from, buf)
		require.NoError(b, err)
	}
	require.NoError(b, from.Close())
	require.NoError(b, <-echoed)
}

func stream(b *testing.B, from, to net.Conn) {
	const piece = 64 << 10
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{to}, make([]byte, piece))
		read <- err
	}()
	buf := make([]byte, piece)
	b.SetBytes(piece)
	b.ReportAllocs()
	for b.Loop() {
		_, err := from.Write(buf)
		require.NoError(b, err)
	}
	require.NoError(b, from.Close())
	require.NoError(b, <-read)
}

// loopback returns a TCP connection of the kernel.
func loopback(b *testing.B) (from, to net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	from, err = net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	to, err = l.Accept()
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, to.Close())
		require.NoError(b, l.Close())
	})
	return from, to
}
