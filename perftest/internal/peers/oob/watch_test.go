package oob

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sockets returns functions that create connected pairs, by the type of socket.
func sockets(t *testing.T) map[string]func() (a, b net.Conn) {
	return map[string]func() (a, b net.Conn){
		"unix": func() (a, b net.Conn) {
			a, b, err := Pipe()
			require.NoError(t, err)
			return a, b
		},
		"tcp": func() (a, b net.Conn) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			a, err = net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			b, err = l.Accept()
			require.NoError(t, err)
			return a, b
		},
	}
}

func TestWatch_DetectsEndBehindData(t *testing.T) {
	for name, pair := range sockets(t) {
		t.Run(name, func(t *testing.T) {
			a, b := pair()
			defer a.Close()
			ended := make(chan struct{})
			stop, err := Watch(a, func() { close(ended) })
			require.NoError(t, err)
			defer stop()

			_, err = b.Write([]byte("abc"))
			require.NoError(t, err)
			got := make([]byte, 1)
			_, err = a.Read(got)
			require.NoError(t, err)
			assert.Equal(t, "a", string(got), "data is not consumed, and is not an end")
			select {
			case <-ended:
				t.Fatal("Watch reports an end while the other side is connected")
			default:
			}

			require.NoError(t, b.Close())
			<-ended
			n, err := a.Read(make([]byte, 8))
			require.NoError(t, err)
			assert.Equal(t, 2, n, "data is not consumed")
		})
	}
}

func TestWatch_Stops(t *testing.T) {
	for name, pair := range sockets(t) {
		t.Run(name, func(t *testing.T) {
			a, b := pair()
			defer b.Close()
			stop, err := Watch(a, func() { t.Error("called although the connection is open") })
			require.NoError(t, err)
			stop()
			require.NoError(t, a.Close())
		})
	}
}

func TestWatch_DoesNothingWithoutSocket(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	stop, err := Watch(a, func() { t.Error("called") })
	require.NoError(t, err)
	require.NoError(t, a.Close())
	stop()
}
