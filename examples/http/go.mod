module github.com/gucx/gucx/examples/http

go 1.26.0

require github.com/gucx/gucx v0.0.0

require (
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/gucx/gucx => ../..
