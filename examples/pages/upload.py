"""The page of `upload.py`: a count of its runs, and the size of a file that is uploaded, which can be had again."""

import streamlit as st

st.session_state.runs = st.session_state.get("runs", 0) + 1
st.write(f"runs: {st.session_state.runs}")
file = st.file_uploader("a file")
if file is not None:
    st.write(f"size: {len(file.getvalue())}")
    st.download_button("the same file", file.getvalue(), "same.txt")
