package ucpgroup

// The 64 bits of a tag, from the highest:
//
//	 63      52  51  50          31 30                  0
//	+----------+----+--------------+---------------------+
//	| context  | co | source rank  | tag of the user, or |
//	|          |    |              | number of the       |
//	|          |    |              | collective          |
//	+----------+----+--------------+---------------------+
//
// context is the communicator; co is set in messages of collective operations. The source
// rank is the rank in the world, so that it only depends on the sender: the worker drops a message with
// another source rank than its sender's (ucp.Worker.RestrictTags).
const (
	userBits    = 31
	rankBits    = 20
	contextBits = 12

	rankShift    = userBits
	collective   = 1 << (userBits + rankBits)
	contextShift = userBits + rankBits + 1

	userMask = 1<<userBits - 1
	rankMask = (1<<rankBits - 1) << rankShift
)

// Limits.
const (
	// MaxTag is the largest tag of a message; tags are not negative. It is MPI_TAG_UB of the
	// usual implementations on 64-bit machines, the largest int32.
	MaxTag = userMask
	// MaxRanks limits the ranks of a group.
	MaxRanks = 1 << rankBits
	// MaxComms limits the communicators that contain a rank, the world included.
	MaxComms = 1 << contextBits
)

// Wildcards of receives and probes.
const (
	AnySource = -1 // a message from any rank of the communicator
	AnyTag    = -1 // a message with any tag
)

// Status describes a message that was received or probed.
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Len    int // of the message in bytes, also if it is longer than the buffer
}

// statusOf returns the status of a message of the communicator. Its source is -1 if the sender is a rank of the group that is
// not in the communicator.
func (c *Comm) statusOf(tag uint64, n int) Status {
	return Status{Source: c.rankOf(sourceOf(tag)), Tag: int(tag & userMask), Len: n}
}

// sourceOf returns the rank of the sender in the world.
func sourceOf(tag uint64) int { return int(tag & rankMask >> rankShift) }

// sendTag returns the tag of a message of the user. rank is the rank of the sender in the world.
func sendTag(context uint16, rank, tag int) uint64 {
	return uint64(context)<<contextShift | uint64(rank)<<rankShift | uint64(tag)
}

// collectiveTag returns the tag of messages of the collective operation with a number.
func collectiveTag(context uint16, rank int, number uint64) uint64 {
	return sendTag(context, rank, int(number&userMask)) | collective
}

// recvTag returns the tag and the mask of a receive. source is a rank in the world. source and tag may be wildcards.
func recvTag(context uint16, source, tag int) (want, mask uint64) {
	mask = ^uint64(0)
	if source == AnySource {
		source, mask = 0, mask&^rankMask
	}
	if tag == AnyTag {
		tag, mask = 0, mask&^userMask
	}
	return sendTag(context, source, tag), mask
}
