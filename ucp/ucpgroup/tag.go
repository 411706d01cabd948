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
// context is the communicator, co says that the message is of a collective operation. The source
// rank is that in the world, so that it depends on the sender only: the worker drops a message whose
// source rank is not that of its sender (ucp.Worker.RestrictTags).
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
	// MaxTag is the highest tag of a message; tags are not negative. As MPI_TAG_UB of the
	// usual implementations on 64-bit machines, a positive int32.
	MaxTag = userMask
	// MaxRanks is the most ranks of a group.
	MaxRanks = 1 << rankBits
	// MaxComms is the most communicators that a rank is in at a time, the world included.
	MaxComms = 1 << contextBits
)

// Wildcards of receives and probes.
const (
	AnySource = -1 // a message from any rank of the communicator
	AnyTag    = -1 // a message with any tag
)

// Status tells of a message that was received or found.
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Len    int // of the message in bytes, also if it is longer than the buffer
}

// statusOf is the status of a message of the communicator. Its source is -1 if the sender is a rank of
// the group that is not in the communicator.
func (c *Comm) statusOf(tag uint64, n int) Status {
	return Status{Source: c.rankOf(sourceOf(tag)), Tag: int(tag & userMask), Len: n}
}

// sourceOf is the rank in the world of the sender of a message.
func sourceOf(tag uint64) int { return int(tag & rankMask >> rankShift) }

// sendTag is the tag of a message of the user's that a rank of the world sends.
func sendTag(context uint16, rank, tag int) uint64 {
	return uint64(context)<<contextShift | uint64(rank)<<rankShift | uint64(tag)
}

// collectiveTag is the tag of a message of the collective operation of that number.
func collectiveTag(context uint16, rank int, number uint64) uint64 {
	return sendTag(context, rank, int(number&userMask)) | collective
}

// recvTag is the tag and the mask of a receive from a rank of the world. Source and tag may be
// wildcards.
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
