// Package config reads the configuration of every layer from the environment, in
// the grammar that UCX users know, with the prefix GUCX_.
//
// A configuration is a plain struct whose zero value is the default. Its exported
// fields name themselves by tags:
//
//	type Config struct {
//		TxDepth int         `env:"TX_DEPTH" default:"256" doc:"Send queue length in basic blocks of 64 bytes."`
//		Seg     config.MemSize `env:"SEG_SIZE" default:"8k" doc:"Size of a bounce buffer."`
//		FC      FlowControl `env:"FC"` // a nested table: GUCX_RC_FC_...
//	}
//
//	var rc rc.Config
//	err := config.FromEnv(os.Environ(), config.Table{Prefix: "RC", Doc: "rc transport", Config: &rc})
//
// There is no registry: who reads the environment passes all tables at once, so
// that a name which none of them knows is an error that suggests the nearest one.
//
// # Tags
//
//	env      the name, without prefixes; a field without it is not in the environment
//	doc      help, one or more sentences
//	default  how the printer shows the zero value; it must be in the field's grammar
//	enum     for strings: the permitted values, separated by commas
//
// # Grammar
//
//	int, uint       -12, 4096, 0x1000
//	bool            y yes on 1 true, n no off 0 false
//	[Ternary]       y, n, try, auto
//	[MemSize]       512, 8k, 1.5m, 2gb, inf, auto
//	time.Duration   20us, 10ms, 1.5s, 2m, inf, auto; without a unit, seconds
//	[List]          rc,ud allows these two; ^tcp all but tcp; all
//	[]string        a,b,c
//	string          as it is, or one of enum
//	float64         0.25
//	anything else   a type with UnmarshalText, MarshalText and Grammar
//
// Keywords, units and booleans are read in any case. A struct may have a method
// Validate() error on its pointer; it sees the values before they take effect.
package config
