"""The lab: counterparts with a known truth, to test clients, gateways and Outlay itself against."""
