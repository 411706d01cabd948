package tlsets

import "github.com/gucx/gucx/internal/testenv"

// ClosedByte is the value of the bytes of memory that its owner has closed: no peer may write there any more.
const ClosedByte = 0x5A

// SleeperID is the id of the first active message of the role "sleeper", by which its parent learns of the EP.
const SleeperID = 2

// ProcessSets returns the transports between two processes, in a sweep also those that are like rc.
func ProcessSets() []string {
	sets := []string{"sm", `\rc`, "tcp", "all"}
	if testenv.Sweep() {
		sets = append(sets, "rc_mlx5", `\rc,tcp`)
	}
	return sets
}

// LongMessage is the length of a message in many fragments, in bytes.
const LongMessage = 100_000

// RndvSchemes are the values of RNDV_SCHEME.
var RndvSchemes = []string{"auto", "get_zcopy", "put_zcopy", "am"}
