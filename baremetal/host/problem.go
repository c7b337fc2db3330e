package host

// Reason is a reason why a host is not the machine's, or does not obey, or does not prove that it is off.
type Reason string

// Why there is no host of a machine, or why it is not the machine's.
const (
	NoMachine           Reason = "NoMachine"
	KindNotServed       Reason = "KindNotServed"       // Found is the error
	OtherInfrastructure Reason = "OtherInfrastructure" // Found is its kind
	NoMetal3Machine     Reason = "NoMetal3Machine"
	NoHostNamed         Reason = "NoHostNamed" // by the Metal3Machine
	NoHost              Reason = "NoHost"
	HostDeleting        Reason = "HostDeleting"
	HostReplaced        Reason = "HostReplaced" // by Found
	NoConsumer          Reason = "NoConsumer"
	OtherConsumer       Reason = "OtherConsumer" // Found
	ConsumerChanged     Reason = "ConsumerChanged"
	OtherProviderID     Reason = "OtherProviderID"   // Found, of the Machine
	TwoMetal3Machines   Reason = "TwoMetal3Machines" // the other one is Found
)

// Why BMO does not act on the power of a host. Of Paused, NotRegistered and NotProvisioned, Found is what the host says.
const (
	HostUnknown    Reason = "HostUnknown" // there is none
	Paused         Reason = "Paused"
	Detached       Reason = "Detached"
	Delayed        Reason = "Delayed"
	NotRegistered  Reason = "NotRegistered"
	NotProvisioned Reason = "NotProvisioned"
)

// What BMO reports against that a host is off. Found is what the host says.
const (
	NotManageable Reason = "NotManageable"
	HasError      Reason = "HasError"
	NotOK         Reason = "NotOK" // its operational status
)

// Problem is a reason with its arguments, which controllers/explain renders. The zero value says that there is none.
type Problem struct {
	Reason Reason
	// Object is the name of what it is about, with its namespace; Found is what is there, and Wanted what should be.
	Object, Found, Wanted string
}
