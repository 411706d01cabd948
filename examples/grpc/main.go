// Command grpc is a gRPC server and client over gucx. They differ from a server and client over sockets only in the
// listener and the dialer: see sockets.go.
//
//	go run . -listen 127.0.0.1:7000 &
//	go run . -dial 127.0.0.1:7000 hello
//
// With -over tcp or -over unix they use sockets. -bench compares both: see bench.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() {
	log.SetFlags(0)
	listenAt := flag.String("listen", "", "serve at this address: HOST:PORT, the path of a unix socket, or @NAME")
	dialTo := flag.String("dial", "", "call the server at this address with the arguments")
	over := flag.String("over", "gucx", "gucx, or sockets: tcp, unix")
	compare := flag.Bool("bench", false, "print a table that compares gucx with sockets")
	only := flag.String("only", "", "with -bench: services whose name contains this")
	benchServes := flag.Bool("benchserver", false, "be a server for -bench")
	flag.Parse()
	var err error
	switch {
	case *benchServes:
		err = benchServer(*over)
	case *compare:
		err = runBench(os.Stdout, *only, 5, 300*time.Millisecond)
	case *listenAt != "":
		err = serve(*over, *listenAt)
	case *dialTo != "":
		err = call(*over, *dialTo, strings.Join(flag.Args(), " "))
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve runs the server until the process is interrupted. It then completes the calls in progress.
func serve(over, address string) error {
	n, err := open(over)
	if err != nil {
		return err
	}
	defer n.close()
	l, err := n.listen(address)
	if err != nil {
		return err
	}
	server := newServer()
	stop, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	context.AfterFunc(stop, server.GracefulStop)
	fmt.Println("listening at", l.Addr())
	return server.Serve(l)
}

// newServer returns a server of the service.
func newServer() *grpc.Server {
	server := grpc.NewServer()
	server.RegisterService(&echoService, nil)
	return server
}

// echoService is the description, as protoc generates it, of a service with one method, which returns its argument.
var echoService = grpc.ServiceDesc{
	ServiceName: "gucx.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Say",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			said := new(wrapperspb.BytesValue)
			return said, decode(said)
		},
	}},
}

// call calls the service with a text and prints the reply.
func call(over, address, what string) error {
	n, err := open(over)
	if err != nil {
		return err
	}
	defer n.close()
	client, err := newClient(n, address)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := say(ctx, client, []byte(what))
	if err != nil {
		return err
	}
	fmt.Printf("the server says: %s\n", answer)
	return nil
}

// newClient returns a client of the server at an address. The caller must close it.
func newClient(n *network, address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return n.dial(ctx, address) }))
}

// say calls the service and returns the reply.
func say(ctx context.Context, client *grpc.ClientConn, what []byte) ([]byte, error) {
	answer := new(wrapperspb.BytesValue)
	if err := client.Invoke(ctx, "/gucx.Echo/Say", wrapperspb.Bytes(what), answer); err != nil {
		return nil, err
	}
	return answer.Value, nil
}
