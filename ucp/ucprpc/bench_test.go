package ucprpc

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// BenchmarkCall calls a server in another process, with 64 bytes in each direction.
func BenchmarkCall(b *testing.B) {
	for _, tls := range []string{"sm", "tcp"} {
		for _, m := range []Method{methodInline, methodEcho} {
			for _, callers := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%v/%d", tls, m, callers), func(b *testing.B) { benchmarkCall(b, tls, m, callers) })
			}
		}
	}
}

func benchmarkCall(b *testing.B, tls string, m Method, callers int) {
	address := freshName()
	startServer(b, tls, address)
	cl := dial(b, newContext(b, tls), address, ClientConfig{})
	b.ResetTimer()
	b.ReportAllocs()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			request, buf := make([]byte, 64), make([]byte, 64)
			for range b.N / callers {
				if _, err := cl.Call(context.Background(), m, request, buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
