package ring

// Packets on the request ring.
const (
	OpFiller   = iota
	OpSend     // RC send: payload, imm with FlagImm
	OpWrite    // RDMA write through the target: payload at RAddr
	OpWriteImm // the immediate of a write whose bytes are in place already
	OpRead     // RDMA read through the target: Total bytes at RAddr
	OpAtomicFA // fetch-and-add through the target
	OpAtomicCS // compare-and-swap through the target
	OpDatagram // UD send
	OpFault    // the initiator was refused: status is what happened, MSN the first of the connection
	OpFilled   // a send that the initiator has put into receive RAddr of the SRQ

	// Packets on the response ring.
	OpAck      // everything up to MSN is done
	OpNak      // MSN was refused with status; everything before is done
	OpRNR      // MSN found no receive; status is the timer code, or RNRBusy
	OpReadData // payload at offset RAddr of the oldest request, which is MSN
	OpAtomicOK // SwapAdd is the old value
)

// RNRBusy in a packet OpRNR: a peer is filling the receive that is next. It is no timer code.
const RNRBusy = 0xff

// Packet flags.
const (
	FlagFirst     = 1 << iota // first packet of a message
	FlagLast                  // last packet of a message
	FlagImm                   // Imm is valid
	FlagSolicited             // raise a solicited event
	FlagXRC                   // of an XRC initiator: Ext is the number of the SRQ
)
