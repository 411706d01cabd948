package ring

// Packets on the request ring.
const (
	OpFiller   = iota
	OpSend     // RC send: payload, imm with FlagImm
	OpWrite    // RDMA write through the target: payload at RAddr
	OpWriteImm // immediate of a write that the initiator has executed
	OpRead     // RDMA read through the target: Total bytes at RAddr
	OpAtomicFA // fetch-and-add through the target
	OpAtomicCS // compare-and-swap through the target
	OpDatagram // UD send
	OpFault    // a request of the initiator was rejected: Status is the syndrome, MSN the first of the connection
	OpFilled   // notice: the initiator has filled receive RAddr of the SRQ with a send

	// Packets on the response ring.
	OpAck      // all messages up to MSN are complete
	OpNak      // MSN was rejected with Status; all earlier messages are complete
	OpRNR      // MSN found no receive; Status is the timer code, or RNRBusy
	OpReadData // payload at offset RAddr of the oldest request, which is MSN
	OpAtomicOK // SwapAdd is the old value
)

// RNRBusy in a packet OpRNR means that a peer is filling the next receive. It is not a timer code.
const RNRBusy = 0xff

// Packet flags.
const (
	FlagFirst     = 1 << iota // first packet of a message
	FlagLast                  // last packet of a message
	FlagImm                   // Imm is valid
	FlagSolicited             // raise a solicited event
	FlagXRC                   // from an XRC initiator: Ext is the number of the SRQ
)
