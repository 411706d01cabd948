package ucpnet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAccept_Once: a server that accepts one connection, and then makes no progress, does not hold
// up the Dial of its client.
func TestAccept_Once(t *testing.T) {
	for _, tls := range sets[1:] { // a worker that dials itself makes progress for both
		t.Run(tls, func(t *testing.T) {
			client, server := newWorker(t, tls), newWorker(t, tls)
			l, err := Listen(t.Context(), server, "unix", freshName())
			require.NoError(t, err)
			dialed := make(chan error, 1)
			var a *Conn
			go func() {
				var err error
				a, err = Dial(t.Context(), client, "unix", l.Addr().String())
				dialed <- err
			}()
			b, err := l.Accept()
			require.NoError(t, err)
			require.NoError(t, <-dialed, "without progress of the server")
			(&pair{a: client}).serve(t)
			require.NoError(t, writeOne(a))
			require.NoError(t, readOne(b))
			closeBoth(a, b)
			require.NoError(t, l.Close())
		})
	}
}
