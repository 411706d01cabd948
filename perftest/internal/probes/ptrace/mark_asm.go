//go:build amd64 || arm64

package ptrace

// trap stops this thread for the tracer, with code and base in the first two argument registers.
//
//go:noescape
func trap(code, base uint64)

// known is a loop of KnownLen instructions.
//
//go:noescape
func known()
