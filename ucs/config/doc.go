// Package config reads the configuration of every layer from the environment, in
// the grammar that UCX users know, with the prefix GUCX_.
//
// A configuration is a plain struct whose zero value is the default. Tags give its exported fields their names:
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
// There is no registry: the program passes all tables to one call of FromEnv. A name that is in no table is an error,
// which suggests the most similar known name.
//
// # Tags
//
//	env      the name, without prefixes; a field without it is not in the environment
//	doc      help, one or more sentences
//	default  text that Print prints for the zero value, in the grammar of the field
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
// Keywords, units and booleans may be in upper or lower case. A pointer to the struct may have a method Validate()
// error. FromEnv calls it with the new values before they take effect.
package config
